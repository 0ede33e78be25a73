"""The corpus "harbour": invented conversations on software and daily life, the same on every machine.

English prose from a vocabulary of some three thousand word forms whose frequencies fall as in natural language (Zipf),
with a piece of code in every fourth answer and every tenth paragraph in Chinese or Japanese. A question has about 500
bytes, an answer about 1,500. All of it is invented.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

NAME = "harbour"

_COMMON = """
    the of and to a in is that it for was on are with as I you be this have or from at not but by what they
    we can if will one would there which when more all so my about out up them then your into some could
    other than time no only its also after because how our first any these two may like new over even most
    such should now where does before must through same here very just every while still might
""".split()

_NOUNS = """
    account address agent answer archive array attempt author balance barrier batch beach benefit bicycle
    block boat bottle branch bread bridge buffer button cabin cable cache calendar camera candle canvas
    carpet castle category cellar chain chair chapter charge circle claim class client climate clock cloud
    coast collection column comment commit company compiler concept condition connection container contract
    copy corner cost country course cover crash cursor customer cycle database deadline decision default
    degree delay demand design detail device dinner direction disk distance document door draft driver edge
    editor effect element engine entry error event example exception exchange expense factor failure family
    farmer feature field figure file filter finger flag flight floor folder forest format frame friend
    function future garden gateway ghost glass goal grain graph prepared group guard guest guide habit hammer
    handle harbour header heart height history holiday hook hotel hour house idea image index input instance
    island issue item jacket job journal journey kernel kettle keyboard kitchen label ladder lake lamp
    language layer lease lesson letter level library light limit line list load lock log loop machine mail
    manager map margin market measure meeting member memory menu message meter method migration minute
    mirror mistake model module moment month morning motor mountain museum name nature neighbour network
    node note notice number object ocean offer office operation option order output owner package page paper
    parameter parent park part partner path pattern payment person phone picture piece pipeline plan plant
    plate platform pocket point policy port position price printer problem process product profile program
    project promise proof protocol purpose quality query question queue range rate reader reason recipe
    record reference region release report request result review river road role roof folder root route row
    rule sample scale schedule school schema screen script season second segment sensor sentence series
    server session setting shadow shape shelf signal size skill snapshot socket solution song source space
    speed spring stepped standard station statement step stone store storm story stream street string
    structure student subject summer supply surface switch symbol system table target task teacher team
    temperature test theory thread ticket token tool topic tower track trade train transaction transfer tree
    trip trouble tunnel turn type unit update user valley value variable vector version vessel village visit
    voice volume walk wall warning watch water wave weather week weight wheel window winter wire wood word
    worker world writer year
""".split()

_VERBS = """
    accept add adjust agree allow appear apply arrange ask avoid begin believe belong borrow break bring
    build call carry catch cause change check choose clean clear close collect combine compare complete
    confirm connect consider contain continue convert cook correct count create decide declare deliver
    depend describe destroy detect develop discover discuss divide draw drop earn enable encourage end enjoy
    enter examine expect explain explore export extend fail fall fetch fill find finish fit fix follow
    forget gather generate give grow guess happen hear help hide hold hope ignore imagine import improve
    include increase inform insert install intend invite join keep know last lead learn leave lend listen
    live look lose maintain make manage mark match matter mean measure meet mention merge miss move need
    notice obtain open operate own paint pass pause pay pick place play prefer prepare present prevent print
    produce protect prove provide publish pull push put raise reach read realise receive recover reduce
    refer refuse remain remember remove rename repair repeat replace reply report require reserve reset
    resolve respond rest restart restore retry return reveal rewrite roll run save say search see seem
    select send separate serve set share ship show sign skip sleep solve sort speak spend split stand start
    stay stop store study submit succeed suggest support suppose survive take talk teach tell thank think
    throw touch trace translate travel treat trust try turn understand unlock update upgrade use verify
    visit wait wake want warn wash watch wear win wonder work wrap write
""".split()

_QUALITIES = """
    able active actual afraid ancient available average awake bad basic big bitter bold bright broad broken
    busy calm careful central certain cheap clean clever cold common complete complex concrete constant cool
    correct cruel current curious dark deep different difficult direct dry early easy empty entire equal
    exact explicit famous fast final fine firm fixed flat free fresh friendly full general gentle global
    good great green happy hard heavy helpful hidden high honest huge human idle important independent
    initial inner large late lazy likely linear local logical lonely long loose loud low lucky main major
    manual mild minor missing modern narrow natural neat nervous normal odd old online open ordinary outer
    parallel partial patient perfect plain pleasant polite poor popular possible precise present private
    proper public pure quick quiet random rare raw ready real recent red regular related reliable remote
    rich rough round safe separate serious sharp short silent similar simple single slow small smooth soft
    solid special stable stale steady strange strict strong sudden sure sweet tall temporary thick thin
    tight tiny total true typical unique useful usual valid visible warm weak wet whole wide wild wise wrong
    young
""".split()

_CHINESE = """
    我们 你们 他们 今天 明天 昨天 时间 问题 数据 系统 会话 消息 程序 函数 文件 错误 测试 网络 服务 用户 需要
    可以 应该 如果 因为 所以 但是 然后 已经 没有 知道 觉得 希望 开始 结束 检查 修改 保存 删除 发送 接收 打开
    关闭 运行 重新 继续 等待 完成 失败 成功 事务 索引 缓存 线程 进程 端口 内存 磁盘 日志 版本 更新 安装 配置
    环境 接口 参数 返回 结果 方法 对象 列表 字典 连接 数据库 服务器 城市 天气 朋友 家人 学校 老师 学生 工作
    公司 会议 计划 旅行 火车 飞机 酒店 餐厅 咖啡 早上 晚上 周末 春天 夏天 秋天 冬天 北京 上海 东京 中国 世界
    历史 文化 音乐 电影 书店 图书馆 健康 运动 海边 山路 花园 厨房 窗户 房间 颜色 红色 蓝色 漂亮 安静 便宜
    重要 简单 复杂 容易 困难 特别 非常 比较 一起 大概 可能 当然 其实 总是 经常 有时 刚才 马上 慢慢
""".split()

_JAPANESE = """
    データ セッション メッセージ サーバー ファイル テスト エラー を に は が で と から まで 使う 書く 読む
    送る 待つ 始める 終わる 確認する 保存する 今日は 明日は 時間 問題 結果 方法 場合 設定 接続 更新 会議
    予定 友達 天気 駅 電車 旅行 静かな 簡単な 大切な とても 少し 多分 もう一度 お願いします ありがとう
    ですか でした ません
""".split()

_CODE = [
    """def {a}_{b}({c}, *, {d}=None):
    for {e} in {c}.{f}s():
        if {e}.{g} is None:
            continue
        {d} = {e}.{g}.get("{b}_{e}", {n})
    return {d} or {c}.{a}("{f}")
""",
    """class {B}{A}:
    def __init__(self, {c}: {C}, {d}: int = {n}) -> None:
        self.{c} = {c}
        self._{d}s = [{c}.{a}(i) for i in range({d})]

    def {a}(self) -> {C}:
        with self._{c}_lock:
            return self.{c}.{g}(self._{d}s)
""",
    """SELECT {c}.id, {d}.{e}, count(*) AS {f}s
FROM {c}s AS {c} JOIN {d}s AS {d} ON {d}.{c}_id = {c}.id
WHERE {c}.{g} > {n} AND {d}.{e} IS NOT NULL
GROUP BY {c}.id ORDER BY {f}s DESC LIMIT 20;
""",
    """export function {a}{B}({c}, {d}) {{
  const {e} = {d}.filter(({f}) => {f}.{g} !== "{n}");
  if (!{e}.length) throw new Error(`no {f} for ${{{c}.id}}`);
  return {e}.map((x) => x.{b});
}}
""",
]


class Exchange(NamedTuple):
    """A question of a person and the answer of an agent."""

    question: str
    answer: str

    @property
    def payload(self) -> int:
        """The number of bytes of UTF-8 in both."""
        return len(self.question.encode()) + len(self.answer.encode())


class Vocabulary:
    """Words with the frequencies of natural language: the n-th is drawn about 1/n as often as the first."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))

    def __len__(self) -> int:
        return len(self._words)

    def draw(self, chance: random.Random, count: int) -> list[str]:
        return chance.choices(self._words, cum_weights=self._weights, k=count)


def conversations(sessions: int, seed: int = 20) -> Iterator[list[Exchange]]:
    """Conversations of 20 to 50 exchanges each; the same seed always gives the same ones."""
    chance = random.Random(seed)
    speaker = _Speaker(chance)
    for _ in range(sessions):
        yield [speaker.exchange() for _ in range(chance.randint(20, 50))]


def english() -> Vocabulary:
    """The English words: common ones first, then the others shuffled, with their inflected forms."""
    rest = [
        *_NOUNS,
        *(noun + "s" for noun in _NOUNS),
        *_VERBS,
        *(verb.removesuffix("e") + end for verb in _VERBS for end in ("ed", "ing", "er")),
        *(verb + "s" for verb in _VERBS),
        *_QUALITIES,
        *(quality + end for quality in _QUALITIES for end in ("ly", "ness")),
        *("un" + verb for verb in _VERBS[::3]),
        *("re" + verb for verb in _VERBS[1::3]),
        *(first + second for first, second in zip(_NOUNS[::2], reversed(_NOUNS), strict=False)),
    ]
    random.Random(3).shuffle(rest)
    return Vocabulary([*_COMMON, *rest])


class _Speaker:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._english = english()
        self._foreign = [Vocabulary(_CHINESE), Vocabulary(_JAPANESE)]

    def exchange(self) -> Exchange:
        question = self._paragraphs(self._length(500))
        answer = self._paragraphs(self._length(1_500))
        if self._chance.random() < 0.25:
            answer += f"\n\n```\n{self._code()}```"
        return Exchange(question, answer)

    def _length(self, usual: int) -> int:
        return int(usual * self._chance.triangular(0.4, 2.0, 0.6))

    def _paragraphs(self, size: int) -> str:
        found: list[str] = []
        while (left := size - sum(len(paragraph.encode()) + 2 for paragraph in found)) > 40:
            found.append(self._paragraph(min(left, self._chance.randint(200, 600))))
        return "\n\n".join(found)

    def _paragraph(self, size: int) -> str:
        sentence = self._foreign_sentence if self._chance.random() < 0.1 else self._sentence
        text = sentence()
        while len(text.encode()) < size - 60:
            text += sentence()
        return text.strip()

    def _sentence(self) -> str:
        words = self._english.draw(self._chance, self._chance.randint(5, 18))
        if len(words) > 11:
            words[6] += ","
        if self._chance.random() < 0.08:
            words[-1] = str(self._chance.randint(2, 4000))
        text = " ".join(words)
        return text[0].upper() + text[1:] + self._chance.choice([". ", ". ", ". ", "? ", ": ", "! "])

    def _foreign_sentence(self) -> str:
        words = self._chance.choice(self._foreign).draw(self._chance, self._chance.randint(4, 10))
        return "".join(words) + self._chance.choice("。。，？")

    def _code(self) -> str:
        names = dict(zip("abcdefg", self._chance.sample(_NOUNS, 7), strict=True))
        capitals = {key.upper(): name.capitalize() for key, name in names.items()}
        return self._chance.choice(_CODE).format(**names, **capitals, n=self._chance.randint(1, 500))

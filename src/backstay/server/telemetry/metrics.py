"""Metrics: counted in each worker, summed over all workers, returned in the Prometheus text format."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from backstay.gateways.gateway_status import GatewayStatus
from backstay.server.telemetry.logs import log

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# The key of a sample is its name with its labels, as Prometheus writes it: `backstay_turns_total{outcome="failed"}`.
Samples = dict[str, float]


class Described(NamedTuple):
    """The name, type and help text of a metric."""

    name: str
    kind: str
    help: str


class Counter:
    """A counter, or a gauge if `level` is true."""

    def __init__(self, name: str, help: str, *, level: bool = False) -> None:
        self.described = Described(name, "gauge" if level else "counter", help)
        self.samples: Samples = {}

    def add(self, amount: float = 1, **labels: str) -> None:
        """Add to the value."""
        sample = sample_name(self.described.name, labels)
        self.samples[sample] = self.samples.get(sample, 0) + amount

    def set(self, value: float, **labels: str) -> None:
        """Set the value, if something else counts it."""
        self.samples[sample_name(self.described.name, labels)] = value


class Histogram:
    """Durations in cumulative buckets."""

    def __init__(self, name: str, help: str) -> None:
        self.described = Described(name, "histogram", help)
        self._counts = [0] * len(BUCKETS)
        self._sum = 0.0
        self._count = 0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._sum += seconds
        self._count += 1
        for place, bound in enumerate(BUCKETS):
            if seconds <= bound:
                self._counts[place] += 1
                break

    @property
    def samples(self) -> Samples:
        """The cumulative buckets, the sum and the count."""
        name, total = self.described.name, 0
        found: Samples = {}
        for bound, count in zip(BUCKETS, self._counts, strict=True):
            total += count
            found[f'{name}_bucket{{le="{bound:g}"}}'] = total
        return found | {
            f'{name}_bucket{{le="+Inf"}}': self._count,
            f"{name}_sum": self._sum,
            f"{name}_count": self._count,
        }


class Metrics:
    """The metrics of a worker; with a folder, the sum over all workers that share it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._shared = True
        self.requests = Counter("backstay_requests_total", "Requests by operation and status.")
        self.request_seconds = Histogram("backstay_request_seconds", "Duration of requests, without streams.")
        self.turns = Counter("backstay_turns_total", "Turns that ended in this server, by outcome.")
        self.running = Counter("backstay_turns_running", "Running turns in this server.", level=True)
        self.commit_seconds = Histogram("backstay_commit_seconds", "Time until a write is durable.")
        self.checkpoint_seconds = Histogram("backstay_checkpoint_seconds", "Time until a checkpoint is committed.")
        self.streams = Counter("backstay_streams", "Open event streams.", level=True)
        self.events = Counter("backstay_stream_events_total", "Events sent on streams.")
        self.lag = Histogram("backstay_stream_lag_seconds", "Time from storing an event to sending it.")
        self.slow_readers = Counter("backstay_slow_readers_total", "Streams ended because the client did not read.")
        self.live_agents = Counter("backstay_live_agents", "Live agents kept between turns.", level=True)
        self.pool_hits = Counter("backstay_pool_hits_total", "Turns that reused a live agent.")
        self.pool_misses = Counter("backstay_pool_misses_total", "Built live agents, by reason.")
        self.refused = Counter("backstay_refused_total", "Requests rejected before routing, by reason.")

        self.gateway_messages = Counter("backstay_gateway_messages_total", "Messages of chat platforms, by result.")
        self.gateway_parts = Counter("backstay_gateway_parts_total", "Attempts to send to chats, by result.")
        self.gateway_failures = Counter("backstay_gateway_poll_failures_total", "Failed requests for messages.")
        self.gateway_polling = Counter("backstay_gateway_polling", "Workers that poll the platform.", level=True)
        self.gateway_silence = Counter(
            "backstay_gateway_silence_seconds", "Time since the platform answered a request for messages.", level=True
        )

    def note_gateway(self, status: GatewayStatus) -> None:
        """Copy the counters of a gateway."""
        name = status.name
        for result in ("received", "ignored"):
            self.gateway_messages.set(getattr(status, result), gateway=name, result=result)
        for result in ("sent", "failed", "deferred", "unknown"):
            self.gateway_parts.set(getattr(status, result), gateway=name, result=result)
        self.gateway_failures.set(status.poll_failures, gateway=name)
        self.gateway_polling.set(status.state == "polling", gateway=name)
        silence = status.silent_seconds()
        if silence is None:
            self.gateway_silence.samples.clear()
        else:
            self.gateway_silence.set(silence, gateway=name)

    def _all(self) -> Iterable[Counter | Histogram]:
        return (one for one in vars(self).values() if isinstance(one, Counter | Histogram))

    def save(self) -> None:
        """Write the samples for the other workers to read. If the folder is full or missing, only that is lost."""
        if self.folder is None:
            return
        try:
            for kind, samples in self._by_kind().items():
                _write(self.folder / f"{os.getpid()}.{kind}", samples)
        except OSError as error:
            if self._shared:
                log.warning("metrics are not shared with other workers", extra={"error": error.strerror})
            self._shared = False
        else:
            self._shared = True

    def _by_kind(self) -> dict[str, Samples]:
        kinds: dict[str, Samples] = {"levels": {}, "counts": {}}
        for metric in self._all():
            kinds["levels" if metric.described.kind == "gauge" else "counts"] |= metric.samples
        return kinds

    def text(self, more: Mapping[Described, float]) -> str:
        """All metrics in the Prometheus text format; `more` adds gauges whose values the caller has read."""
        samples = self._summed()
        lines = [line for metric in self._all() for line in _described(metric.described, samples)]
        for level, value in more.items():
            lines += _described(level, {level.name: value})
        return "\n".join(lines) + "\n"

    def _summed(self) -> Samples:
        if self.folder is None or not self._shared:
            return {name: value for samples in self._by_kind().values() for name, value in samples.items()}
        total: Samples = {}
        for file in (*self.folder.glob("*.levels"), *self.folder.glob("*.counts")):
            for name, value in _read(file).items():
                total[name] = total.get(name, 0) + value
        return total


def forget_levels(folder: Path, worker: int) -> None:
    """Remove the gauges of a worker that has ended. Its counters stay in the sums."""
    (folder / f"{worker}.levels").unlink(missing_ok=True)


def sample_name(name: str, labels: Mapping[str, str]) -> str:
    """A sample's name with its labels."""
    if not labels:
        return name
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _described(metric: Described, samples: Samples) -> list[str]:
    names = {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")} if metric.kind == "histogram" else set()
    own = {name: value for name, value in samples.items() if name.partition("{")[0] in names | {metric.name}}
    heading = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    return [*heading, *(f"{name} {_number(value)}" for name, value in own.items())]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _write(path: Path, samples: Samples) -> None:
    unfinished = path.parent / f"{path.name}.part"
    unfinished.write_bytes(msgspec.json.encode(samples))
    unfinished.replace(path)


def _read(path: Path) -> Samples:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Samples)
    except FileNotFoundError:
        return {}

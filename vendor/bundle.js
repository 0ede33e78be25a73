// Makes the vendored files, and a record of what is in them: versions, where they come from, and their licences.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const here = import.meta.dirname;
const to = join(here, "..", "src", "backstay", "server", "static", "vendor");
mkdirSync(to, { recursive: true });

const { metafile } = await build({
  entryPoints: { page: join(here, "page.js"), colours: join(here, "colours.js") },
  outdir: to,
  bundle: true,
  format: "esm",
  minify: true,
  metafile: true,
  charset: "utf8",
  legalComments: "none",
  target: "es2022",
});

const names = new Set(
  Object.keys(metafile.inputs).map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]).filter(Boolean),
);
const told = [...names].sort().map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json")));
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  const text = file ? readFileSync(join(folder, file), "utf8").trim() : `Published under ${license}.`;
  return `${name} ${version} (${license})\n\n${text}\n`;
});
writeFileSync(
  join(to, "LICENCES.txt"),
  `What page.js and colours.js are made of, by \`make vendor\`.\n\n${told.join(`\n${"-".repeat(80)}\n\n`)}`,
);
copyFileSync(join(here, "node_modules", "axe-core", "axe.min.js"), join(here, "..", "tests", "page", "axe.min.js"));

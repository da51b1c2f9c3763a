// Builds the page with esbuild alone: `bundle/` from `src/` and `static/`. The same sources give the same bytes.
// The editor of the model is a program of its own, which the page loads when its view is opened. The page of the hub is
// another program, with files of its own.
// `--check` compares the committed bundle with the sources instead.
// `--test` bundles `test/*.test.ts` into a temporary folder and runs them with `node --test`.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const LIMIT = 60 * 1024;
/** The files of the first view of each page; other files come later. */
const FIRST = { page: ["index.html", "page.js", "page.css", "icon.svg"], hub: ["hub.html", "hub.js", "hub.css", "icon.svg"] };

const common = {
  absWorkingDir: here,
  bundle: true,
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  target: "es2022",
};

async function page(check) {
  const outputs = [];
  const entries = [
    ["page", "src/main.tsx"],
    ["page", "src/page.css"],
    ["hub", "src/hub/main.tsx"],
    ["hub", "src/hub/hub.css"],
  ];
  for (const [name, entry] of entries) {
    const entryPoints = { [name]: entry };
    const { outputFiles } = await build({ ...common, entryPoints, format: "iife", minify: true, outdir: "bundle", write: false });
    outputs.push(...outputFiles);
  }
  const entryPoints = { editor: "src/editor/main.ts" };
  const { outputFiles } = await build({ ...common, entryPoints, format: "esm", minify: true, outdir: "bundle", write: false });
  outputs.push(...outputFiles);
  const files = new Map(outputs.map(({ path, contents }) => [basename(path), Buffer.from(contents)]));
  for (const name of ["index.html", "hub.html"]) {
    const html = readFileSync(join(here, "static", name), "utf8");
    files.set(name, Buffer.from(html.replace(/\n\s*/g, "\n")));
  }
  files.set("icon.svg", readFileSync(join(here, "static/icon.svg")));
  const to = join(here, "bundle");
  if (check) {
    const other = [...files].filter(([name, bytes]) => !existsSync(join(to, name)) || !bytes.equals(readFileSync(join(to, name))));
    for (const [name] of other) console.error(`bundle/${name} is not what the sources give: run \`npm run build\``);
    if (other.length > 0) process.exitCode = 1;
    return;
  }
  rmSync(to, { recursive: true, force: true });
  mkdirSync(to);
  for (const [name, bytes] of files) writeFileSync(join(to, name), bytes);
  const packed = new Map();
  for (const name of readdirSync(to).sort()) {
    packed.set(name, gzipSync(readFileSync(join(to, name)), { level: 9 }).length);
    console.log(`${name}: ${statSync(join(to, name)).size} bytes, ${packed.get(name)} with gzip`);
  }
  for (const [name, first] of Object.entries(FIRST)) {
    const sum = first.reduce((sum, file) => sum + packed.get(file), 0);
    console.log(`first view of ${name}: ${sum} bytes with gzip, at most ${LIMIT}`);
    if (sum > LIMIT) process.exitCode = 1;
  }
}

async function tests() {
  const to = mkdtempSync(join(tmpdir(), "cob-page-"));
  try {
    const entries = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
    await build({
      ...common,
      entryPoints: entries.map((name) => join("test", name)),
      format: "esm",
      outdir: to,
      outExtension: { ".js": ".mjs" },
      platform: "node",
    });
    const files = readdirSync(to).filter((name) => name.endsWith(".mjs")).map((name) => join(to, name));
    process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
  } finally {
    rmSync(to, { recursive: true, force: true });
  }
}

await (process.argv.includes("--test") ? tests() : page(process.argv.includes("--check")));

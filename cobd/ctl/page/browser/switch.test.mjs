// Tests of the page during real switches, on the cluster of `cobctl demo --keep DIR`: a switch fails, "why" leads to the
// cause, the page rolls back, switches, stops and starts, and edits the model.
//   COB_PAGE_URL='http://127.0.0.1:PORT/#key=SECRET' COB_DEMO=DIR COB_BIN=FOLDER node --test browser/switch.test.mjs
// COB_BIN has the programs cobctl and cobgen.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { findings, go, launch, LONG, open, settled, tabTo, url } from "./tools.mjs";

const { COB_DEMO: demo, COB_BIN: bin } = process.env;
const skip = url && demo && bin ? false : "COB_PAGE_URL, COB_DEMO and COB_BIN are not set";
const SWITCH = 90_000;

let browser;
before(async () => {
  if (!skip) browser = await launch();
});
after(() => browser?.close());

/** Publishes a generation of the changed model; returns its number. */
function publish(message, change) {
  const file = join(demo, "model/model.yaml");
  const before = readFileSync(file, "utf8");
  writeFileSync(file, change(before));
  const said = execFileSync(join(bin, "cobgen"), ["generate", file, "--depot", join(demo, "depot"), "--message", message], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
  const number = /generation (\d+)/.exec(said)?.[1];
  assert.ok(number, said);
  return Number(number);
}

/** Waits for the sentence of the cluster. */
async function verdict(page, words) {
  await go(page, "#/");
  await page.locator(".verdict h1").filter({ hasText: words }).waitFor({ timeout: SWITCH });
}

/** The failed switch, from the page: its generation and the generation before. */
let broken = 0;

test("a switch fails, and the page says so", { skip, timeout: 200_000 }, async () => {
  const { page, context, faults } = await open(browser);
  await verdict(page, /^OK/);
  broken = publish("a missing file", (model) => model.replace('--config, "{{ folder }}/db.conf"', '--config, "{{ folder }}/missing.conf"'));
  await go(page, `#/switch/${broken}`);
  await page.getByText(/takes about/).first().waitFor({ timeout: SWITCH });
  assert.ok((await page.locator(".gantt-rows [role=row]").count()) > 1, "the forecast has a chart");
  await page.getByRole("button", { name: "Switch…" }).click();
  await page.getByRole("dialog").getByText(/interrupts/).waitFor({ timeout: LONG });
  await page.getByRole("dialog").getByRole("button", { name: "Switch", exact: true }).click();
  await page.getByRole("complementary", { name: "Orders" }).getByText(/exit status 1/).first().waitFor({ timeout: SWITCH });
  await go(page, "#/");
  await page.locator(".tile.c-failed").waitFor({ timeout: LONG });
  assert.equal(await page.locator(".tile.c-failed b").textContent(), "1");
  assert.match(await page.locator("section", { hasText: "Needs a person" }).last().textContent(), /n1\/db\/server/);
  assert.deepEqual(await findings(page), []);
  assert.deepEqual(faults, []);
  await context.close();
});

test("why the load balancer waits, by the keyboard alone", { skip, timeout: 120_000 }, async () => {
  const { page, context, faults } = await open(browser);
  await page.keyboard.press("/");
  await page.keyboard.type("n3/lb/server");
  await page.keyboard.press("Enter");
  const cause = page.locator(".chain .first-cause a").first();
  await cause.waitFor({ timeout: LONG });
  assert.equal(await cause.textContent(), "n1/db/server");
  assert.ok((await page.locator(".chain > li").count()) >= 3);
  assert.ok(await tabTo(page, ".first-cause"));
  await page.keyboard.press("Enter");
  await page.locator("h1", { hasText: "n1/db/server" }).waitFor({ timeout: LONG });
  await settled(page);
  assert.match(await page.locator("main").textContent(), /missing\.conf/);
  assert.deepEqual(await findings(page), []);
  assert.deepEqual(faults, []);
  await context.close();
});

test("the chart of the failed switch has the failed attempts", { skip, timeout: 120_000 }, async () => {
  const { page, context, faults } = await open(browser, { colorScheme: "dark" });
  await go(page, `#/switch/${broken}`);
  await page.locator(".title", { hasText: "failed" }).waitFor({ timeout: LONG });
  await settled(page);
  const words = await page.locator(".gantt-rows [role=row]").allTextContents();
  assert.ok(words.some((row) => row.includes("n1/db/server") && row.includes("failed after")), words.join("\n"));
  assert.deepEqual(await findings(page), []);
  assert.deepEqual(faults, []);
  await context.close();
});

test("the slider goes through the failed switch from event to event, by the keyboard", { skip, timeout: 120_000 }, async () => {
  const { page, context, faults } = await open(browser);
  await go(page, `#/switch/${broken}`);
  await page.locator(".title", { hasText: "failed" }).waitFor({ timeout: LONG });
  await settled(page);
  const slider = page.getByRole("slider", { name: "Time" });
  const moment = page.getByRole("region", { name: "States at this moment" });
  const numbers = async () => (await moment.locator(".chip b").allTextContents()).map(Number);
  const rows = Number(await page.locator(".gantt-rows [role=grid], .gantt-rows[role=grid]").first().getAttribute("aria-rowcount")) - 1;
  await slider.focus();
  await page.keyboard.press("Home");
  const begun = await numbers();
  assert.equal(begun[0] + begun[1] + begun[3], 0, `nothing is done, runs or has failed at the beginning: ${begun}`);
  // Each step changes the time; the failed object runs before it has failed; every object is in one phase.
  const seen = [];
  let last = "";
  for (let at = 0; at < 500; at++) {
    const words = await slider.getAttribute("aria-valuetext");
    const all = await numbers();
    assert.equal(all.reduce((sum, one) => sum + one, 0), rows);
    const db = (await page.locator(".gantt-rows [role=row]", { hasText: "n1/db/server" }).first().locator(".gantt-name .muted").textContent()).trim();
    const failed = (await moment.locator("li", { hasText: "n1/db/server" }).first().textContent()).includes("failed");
    seen.push(failed ? "failed" : db.includes("→") ? "runs" : db);
    if (await page.getByRole("button", { name: "Next event" }).isDisabled()) break;
    const moved = ([before, value]) => {
      const input = document.querySelector(".slider input");
      return input.value !== value || document.querySelector(".slider output").textContent !== before;
    };
    // The chart of a present switch grows: at its end, a key may come before the next event.
    for (let tries = 0; tries < 20; tries++) {
      assert.ok(await slider.evaluate((input) => document.activeElement === input), "the slider keeps the focus");
      await page.keyboard.press("ArrowRight");
      if (await page.waitForFunction(moved, [words, last], { timeout: 1500 }).then(() => true, () => false)) break;
      if (await page.getByRole("button", { name: "Next event" }).isDisabled()) break;
    }
    last = await slider.inputValue();
  }
  assert.ok(seen.includes("runs") && seen.indexOf("failed") > seen.indexOf("runs"), seen.join(" "));
  await page.getByRole("button", { name: "Previous event" }).click();
  assert.equal(await page.getByRole("button", { name: "Next event" }).isDisabled(), false);
  await moment.getByRole("button", { name: /^failed/ }).click();
  assert.deepEqual(await findings(page), []);
  assert.deepEqual(faults, []);
  await context.close();
});

test("the graph and the matrix show a moment of the failed switch", { skip, timeout: 120_000 }, async () => {
  const { page, context, faults } = await open(browser);
  await go(page, `#/switch/${broken}`);
  await page.locator(".title", { hasText: "failed" }).waitFor({ timeout: LONG });
  await settled(page);
  await page.getByRole("slider", { name: "Time" }).focus();
  await page.keyboard.press("Home");
  const moment = page.getByRole("region", { name: "States at this moment" });
  await moment.getByRole("link", { name: "graph" }).click();
  const bar = page.getByRole("group", { name: "Past moment" });
  const slider = bar.getByRole("slider", { name: "Time" });
  await slider.waitFor({ timeout: LONG });
  // It has not begun at first, and fails later.
  const own = page.locator(".tree [role=row]", { hasText: "n1/db/server" }).first().locator(".tree-class");
  await own.getByText("unknown").waitFor({ timeout: LONG });
  await slider.focus();
  for (let at = 0; at < 300 && (await own.textContent()).trim() !== "failed"; at++) await page.keyboard.press("ArrowRight");
  assert.equal((await own.textContent()).trim(), "failed");
  assert.deepEqual(await findings(page), []);
  await go(page, page.url().replace(/.*#\/graph/, "#/matrix"));
  await slider.waitFor({ timeout: LONG });
  await page.getByRole("button", { name: "Services" }).click();
  assert.ok(await slider.isVisible(), "the moment stays with other columns");
  assert.deepEqual(await findings(page), []);
  await bar.getByRole("button", { name: "Now" }).click();
  await bar.waitFor({ state: "detached", timeout: LONG });
  assert.deepEqual(faults, []);
  await context.close();
});

test("the page rolls back after the number is typed", { skip, timeout: 200_000 }, async () => {
  const { page, context, faults } = await open(browser);
  await go(page, "#/generations");
  const entry = page.locator(".generations > li").filter({ has: page.getByRole("link", { name: `Generation ${broken - 1}`, exact: true }) });
  await entry.getByRole("button", { name: "Roll back…" }).click();
  const dialog = page.getByRole("dialog");
  const button = dialog.getByRole("button", { name: "Roll back" });
  assert.ok(await button.isDisabled());
  await dialog.getByRole("textbox").fill(String(broken - 1));
  await button.click();
  await verdict(page, new RegExp(`^OK: generation ${broken - 1}`));
  assert.deepEqual(faults, []);
  await context.close();
});

test("a switch from the page runs beside its forecast", { skip, timeout: 200_000 }, async () => {
  const { page, context, faults } = await open(browser);
  const number = publish("another price", (model) =>
    model.replace('--config, "{{ folder }}/missing.conf"', '--config, "{{ folder }}/db.conf"').replace(/price: (\d+)/, (_, price) => `price: ${Number(price) + 1}`),
  );
  await go(page, `#/switch/${number}`);
  await page.getByText(/takes about/).first().waitFor({ timeout: SWITCH });
  await page.getByRole("button", { name: "Switch…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Switch", exact: true }).click();
  await page.locator(".title", { hasText: "converged" }).waitFor({ timeout: SWITCH });
  await page.locator(".key-planned").waitFor({ timeout: LONG });
  assert.match(await page.locator(".gantt-rows").textContent(), /on the critical path/);
  await verdict(page, new RegExp(`^OK: generation ${number}`));
  assert.deepEqual(faults, []);
  await context.close();
});

test("what if something fails: the faults of the next switch, with their commands", { skip, timeout: 200_000 }, async () => {
  const { page, context, faults } = await open(browser);
  const number = publish("a price to try", (model) => model.replace(/price: (\d+)/, (_, price) => `price: ${Number(price) + 1}`));
  await go(page, `#/generations?changes=${number}`);
  const button = page.getByRole("button", { name: "What if something fails?" });
  await button.waitFor({ timeout: SWITCH });
  await button.focus();
  await page.keyboard.press("Enter");
  const result = page.getByRole("region", { name: "What if something fails" });
  await result.waitFor({ timeout: SWITCH });
  const command = (await result.locator("code").first().textContent()).replace(/ --fault .*/, "");
  const said = spawnSync(join(bin, "cobgen"), [...command.split(" ").slice(1), "--every-fault"], { encoding: "utf8" }).stdout;
  assert.equal(await result.locator("b").first().textContent(), said.split("\n")[0]);
  const codes = await result.locator("code").allTextContents();
  assert.ok(codes.length > 0 && codes.every((code) => said.includes(`again: ${code}`)), codes.join("\n"));
  assert.deepEqual(await findings(page), []);
  // A trial that is left gives its place back.
  await button.click();
  await go(page, "#/");
  await go(page, `#/switch/${number}`);
  do {
    await button.click({ timeout: SWITCH });
    await page.locator(".what-if section, .what-if .trouble").waitFor({ timeout: SWITCH });
  } while (!(await result.isVisible()));
  await page.getByRole("button", { name: "Switch…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Switch", exact: true }).click();
  await verdict(page, new RegExp(`^OK: generation ${number}`));
  assert.deepEqual(faults, []);
  await context.close();
});

test("the page stops a service and starts it again", { skip, timeout: 200_000 }, async () => {
  const { page, context, faults } = await open(browser);
  await go(page, "#/cob/n3/lb/server");
  await page.getByRole("button", { name: "Stop…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/interrupts/).waitFor({ timeout: LONG });
  await dialog.getByRole("textbox").fill("n3/lb/server");
  await dialog.getByRole("button", { name: "Stop", exact: true }).click();
  await page.locator(".title", { hasText: "stopped" }).waitFor({ timeout: SWITCH });
  await page.getByRole("button", { name: "Start…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Start", exact: true }).click();
  await page.locator(".title", { hasText: "settled" }).waitFor({ timeout: SWITCH });
  await verdict(page, /^OK/);
  assert.deepEqual(faults, []);
  await context.close();
});

/** The text in the editor. */
const editorText = (page) => page.locator(".model-editor .cm-content");

/** Opens the model, and waits until its checks have answered. */
async function openModel(page) {
  await go(page, "#/model");
  await editorText(page).waitFor({ timeout: LONG });
  await settled(page);
}

/** The file of the model, its text, and the price in it. */
function theModel() {
  const file = join(demo, "model/model.yaml");
  const before = readFileSync(file, "utf8");
  return { file, before, price: Number(/price: (\d+)/.exec(before)[1]) };
}

/** Selects a text of the editor by its search, as a user does. */
async function find(page, text) {
  await editorText(page).click();
  await page.keyboard.press("Control+f");
  await page.locator(".model-editor .cm-search input[name=search]:focus").waitFor({ timeout: LONG });
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
}

test("a model is edited, checked, saved, published and switched to, by the page alone", { skip, timeout: 300_000 }, async () => {
  const { page, context, faults } = await open(browser);
  await verdict(page, /^OK/);
  await openModel(page);
  const { file, before, price } = theModel();
  // An unknown key is an error in its line, and can't be published.
  await find(page, `price: ${price}`);
  await page.keyboard.type(`price: ${price + 1}`);
  await find(page, "services:");
  await page.keyboard.type("servces:");
  const finding = page.locator("section", { hasText: "Findings" }).getByText(/servces/);
  await finding.first().waitFor({ timeout: LONG });
  assert.ok(await page.getByRole("button", { name: "Publish" }).isDisabled());
  assert.ok((await page.locator(".model-editor .cm-lintRange-error").count()) > 0);
  assert.deepEqual(await findings(page), []);
  // The error goes again; the change of the price stays, and is saved.
  await find(page, "servces:");
  await page.keyboard.type("services:");
  await page.getByText("The model has no errors.").waitFor({ timeout: LONG });
  await page.keyboard.press("Control+s");
  await page.getByText("saved", { exact: true }).waitFor({ timeout: LONG });
  assert.equal(readFileSync(file, "utf8"), before.replace(`price: ${price}`, `price: ${price + 1}`));
  // The changes are shown before they are published.
  await page.locator("section", { hasText: "Changes" }).locator(".change-list .id").first().waitFor({ timeout: LONG });
  await page.getByPlaceholder(/Description/).fill("a higher price, 'quoted'");
  await page.getByRole("button", { name: "Publish" }).click();
  await page.getByRole("complementary", { name: "Orders" }).getByText(/generation \d+/).first().waitFor({ timeout: LONG });
  const button = page.getByRole("button", { name: /^Switch to \d+…/ });
  await button.waitFor({ timeout: LONG });
  const number = Number(/\d+/.exec(await button.textContent())[0]);
  await page.getByText("The latest generation has the same content.").waitFor({ timeout: LONG });
  await button.click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/takes about/).waitFor({ timeout: LONG });
  await dialog.getByRole("button", { name: "Switch", exact: true }).click();
  await verdict(page, new RegExp(`^OK: generation ${number}`));
  await go(page, "#/generations");
  await page.locator(".generations").getByText("a higher price, 'quoted'").first().waitFor({ timeout: LONG });
  assert.deepEqual(faults, []);
  await context.close();
});

test("an unsaved text shows its plan, and a new file is saved with the model", { skip, timeout: 200_000 }, async () => {
  const { page, context, faults } = await open(browser);
  await verdict(page, /^OK/);
  await openModel(page);
  const { file, before, price } = theModel();
  const plan = page.locator("section", { has: page.getByRole("heading", { name: "Plan", exact: true }) });
  await plan.getByText("No object changes.").waitFor({ timeout: LONG });
  const layout = page.locator("section", { has: page.getByRole("heading", { name: "Layout", exact: true }) });
  await layout.getByRole("rowheader", { name: "n1", exact: true }).first().waitFor({ timeout: LONG });
  await find(page, `price: ${price}`);
  await page.keyboard.type(`price: ${price + 1}`);
  await plan.locator(".change-list .id").first().waitFor({ timeout: LONG });
  await plan.getByText(/takes about/).waitFor({ timeout: LONG });
  assert.equal(readFileSync(file, "utf8"), before);
  assert.deepEqual(await findings(page), []);
  // A text with errors has no plan.
  await find(page, "services:");
  await page.keyboard.type("servces:");
  await plan.getByText("The plan follows when the text has no errors.").waitFor({ timeout: LONG });
  await find(page, "servces:");
  await page.keyboard.type("services:");
  await plan.locator(".change-list .id").first().waitFor({ timeout: LONG });
  // A name outside the folder can't be given.
  const add = page.getByRole("button", { name: "Add", exact: true });
  await page.getByRole("button", { name: "New file…" }).click();
  const name = page.getByRole("textbox", { name: "Name of the new file" });
  await name.fill("../more.yaml");
  assert.ok(await add.isDisabled());
  await name.fill("model.yaml");
  assert.ok(await add.isDisabled());
  await name.fill("more.yaml");
  await add.click();
  await editorText(page).click();
  await page.keyboard.insertText("cobs: {n1/extra: {kind: noop}}\n");
  await plan.locator(".change-list .id", { hasText: "n1/extra" }).waitFor({ timeout: LONG });
  await page.getByText("The model has no errors.").waitFor({ timeout: LONG });
  assert.deepEqual(await findings(page), []);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("saved", { exact: true }).waitFor({ timeout: LONG });
  const more = join(demo, "model/more.yaml");
  assert.equal(readFileSync(more, "utf8"), "cobs: {n1/extra: {kind: noop}}\n");
  assert.notEqual(readFileSync(file, "utf8"), before);
  rmSync(more);
  writeFileSync(file, before);
  assert.deepEqual(faults, []);
  await context.close();
});

test("the page completes keys, and never overwrites the change of another editor", { skip, timeout: 120_000 }, async () => {
  const { page, context, faults } = await open(browser, { colorScheme: "dark" });
  await openModel(page);
  const file = join(demo, "model/model.yaml");
  const before = readFileSync(file, "utf8");
  await editorText(page).click();
  await page.keyboard.press("Control+Home");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Control+Home");
  await page.keyboard.type("budg");
  await page.keyboard.press("Control+Space");
  await page.locator(".model-editor .cm-tooltip-autocomplete").getByText("budgets").first().waitFor({ timeout: LONG });
  assert.deepEqual(await findings(page), []);
  await page.keyboard.press("Escape");
  // Another editor writes the file meanwhile.
  writeFileSync(file, `${before}\n# by another person\n`);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/has changed on the disk/).waitFor({ timeout: LONG });
  assert.equal(readFileSync(file, "utf8"), `${before}\n# by another person\n`);
  await page.getByRole("button", { name: "Discard" }).click();
  await page.locator("[role=status]").getByText("changes are not saved").waitFor({ state: "detached", timeout: LONG });
  await editorText(page).click();
  await page.keyboard.press("Control+End");
  await editorText(page).getByText("# by another person").waitFor({ timeout: LONG });
  writeFileSync(file, before);
  assert.deepEqual(faults, []);
  await context.close();
});

// Tests of the page in a real browser, against a running `cobctl page`. They change nothing on the cluster.
//   COB_PAGE_URL='http://127.0.0.1:PORT/#key=SECRET' node --test browser/page.test.mjs
// COB_CHROMIUM is the browser (default: /usr/bin/chromium).
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { findings, go, launch, LONG, open as openIn, settled, tabTo, url } from "./tools.mjs";

const skip = url ? false : "COB_PAGE_URL is not set";

let browser;
before(async () => {
  if (url) browser = await launch();
});
after(() => browser?.close());
const open = (options) => openIn(browser, options);

/** An object of a class, or null. */
async function someObject(page, cls) {
  await go(page, `#/objects?class=${cls}`);
  await page.waitForTimeout(300);
  const link = page.locator(".objects .virtual-space .cell-id a").first();
  return (await link.count()) > 0 ? link.textContent() : null;
}

async function anyObject(page) {
  return (await someObject(page, "waiting")) ?? (await someObject(page, "failed")) ?? someObject(page, "settled");
}

async function generation(page) {
  await go(page, "#/");
  return (await page.locator(".facts dd").first().textContent()).trim();
}

async function views(page) {
  const object = await anyObject(page);
  const number = await generation(page);
  const host = object.split("/")[0];
  return [
    "#/",
    "#/objects",
    "#/objects?class=waiting",
    "#/hosts",
    `#/host/${host}`,
    "#/matrix",
    "#/matrix?by=service",
    "#/graph",
    `#/graph?at=${encodeURIComponent(object)}`,
    `#/cob/${object}`,
    `#/switch/${number}`,
    `#/switch/${Math.max(1, Number(number) - 1)}`,
    "#/generations",
    `#/generations?changes=${Math.max(1, Number(number) - 1)}`,
    "#/drift",
    "#/history",
    "#/history?of=orders",
    "#/model",
  ];
}

for (const colorScheme of ["light", "dark"]) {
  test(`search, dialog and orders: no axe finding (${colorScheme})`, { skip, timeout: 120_000 }, async () => {
    const { page, context, faults } = await open({ colorScheme });
    const object = await anyObject(page);
    await page.getByRole("combobox", { name: "Search hosts and objects" }).fill(object.split("/").at(-1));
    await page.getByRole("option").first().waitFor();
    assert.deepEqual(await findings(page), [], "search");
    await page.keyboard.press("Escape");
    await go(page, `#/cob/${object}`);
    await page.getByRole("button", { name: /^(Stop|Start)…$/ }).first().click();
    await page.getByRole("dialog").locator(".effect p").first().waitFor({ timeout: LONG });
    assert.deepEqual(await findings(page), [], "dialog");
    await page.keyboard.press("Escape");
    // A check only looks, so this order changes nothing.
    await go(page, "#/");
    await page.getByRole("button", { name: "Check now" }).click();
    const drawer = page.getByRole("complementary", { name: "Orders" });
    await drawer.getByText(/done|exit status/).first().waitFor({ timeout: 60_000 });
    assert.match(await drawer.locator("code").first().textContent(), /^cobctl check/);
    assert.notEqual(await drawer.locator("pre").first().textContent(), "");
    assert.deepEqual(await findings(page), [], "orders");
    assert.deepEqual(faults, []);
    await context.close();
  });

  for (const width of [1400, 390]) {
    test(`every view: no violation, no axe finding, no overflow (${colorScheme}, ${width} px)`, { skip, timeout: 240_000 }, async () => {
      const { page, context, faults } = await open({ colorScheme, width, height: width === 390 ? 844 : 900 });
      for (const hash of await views(page)) {
        await go(page, hash);
        await settled(page);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${hash} is ${wide} px too wide`);
        const inner = await page.evaluate(() => {
          const main = document.querySelector("main");
          return main.scrollWidth - main.clientWidth;
        });
        assert.ok(inner <= 0, `the content of ${hash} is ${inner} px too wide`);
        assert.deepEqual(await findings(page), [], hash);
      }
      assert.deepEqual(faults, []);
      await context.close();
    });
  }
}

test("each number of the cluster leads to exactly the list that it counts", { skip, timeout: 120_000 }, async () => {
  const { page, context } = await open();
  const tiles = await page.locator(".tile").evaluateAll((all) => all.map((one) => ({ to: one.getAttribute("href"), number: one.querySelector("b").textContent })));
  assert.equal(tiles.length, 6);
  for (const { to, number } of tiles) {
    await go(page, to);
    await page.locator(".objects").waitFor();
    const rows = Number(await page.locator(".objects").getAttribute("aria-rowcount")) - 1;
    assert.equal(rows, Number(number.replaceAll(",", "")), to);
  }
  await context.close();
});

test("the key is not in the address, and survives a reload", { skip, timeout: 60_000 }, async () => {
  const { page, context } = await open();
  assert.ok(!page.url().includes("key="), page.url());
  await page.reload();
  await page.locator("main .view").waitFor({ timeout: LONG });
  await context.close();
});

test("a wrong key: the page says what to do", { skip, timeout: 60_000 }, async () => {
  const { page, context } = await open({ to: url.replace(/#key=.*/, "#key=wrong"), wait: false });
  await page.getByText("Start cobctl page again").waitFor({ timeout: LONG });
  await context.close();
});

test("why, by the keyboard alone", { skip, timeout: 120_000 }, async (t) => {
  const { page, context, faults } = await open();
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("role")), "combobox");
  await page.keyboard.press("Escape");
  const waiting = await someObject(page, "waiting");
  if (waiting === null) {
    await context.close();
    t.skip("no object waits");
    return;
  }
  await go(page, "#/");
  await page.keyboard.press("/");
  await page.keyboard.type(waiting);
  await page.keyboard.press("Enter");
  await page.locator(".chain .first-cause a").first().waitFor({ timeout: LONG });
  const cause = await page.locator(".chain .first-cause a").first().textContent();
  assert.ok(await tabTo(page, ".first-cause"));
  await page.keyboard.press("Enter");
  await page.waitForURL((to) => to.hash.includes(cause.split("/").at(-1)));
  assert.equal(await page.locator("h1").textContent(), cause);
  assert.deepEqual(faults, []);
  await context.close();
});

test("the list by the keyboard: arrows, end, Enter", { skip, timeout: 60_000 }, async () => {
  const { page, context } = await open();
  await go(page, "#/objects?sort=id");
  const grid = page.locator(".objects");
  await grid.focus();
  await page.keyboard.press("End");
  const rows = Number(await grid.getAttribute("aria-rowcount"));
  const active = await grid.getAttribute("aria-activedescendant");
  assert.equal(await page.locator(`#${active}`).getAttribute("aria-rowindex"), String(rows));
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  await page.waitForURL((to) => to.hash.startsWith("#/cob/"));
  await context.close();
});

test("the tree of the graph by the keyboard: open, child, parent, object", { skip, timeout: 60_000 }, async () => {
  const { page, context } = await open();
  await go(page, "#/graph");
  const tree = page.locator(".tree");
  await tree.focus();
  await page.keyboard.press("Home");
  const row = async () => page.locator(`#${await tree.getAttribute("aria-activedescendant")}`);
  for (let at = 0; at < 30 && (await (await row()).getAttribute("aria-expanded")) === null; at++) await page.keyboard.press("ArrowDown");
  assert.equal(await (await row()).getAttribute("aria-expanded"), "false");
  const top = await (await row()).getAttribute("aria-rowindex");
  await page.keyboard.press("ArrowRight");
  assert.equal(await (await row()).getAttribute("aria-expanded"), "true");
  await page.keyboard.press("ArrowRight");
  assert.equal(await (await row()).getAttribute("aria-level"), "2");
  await page.keyboard.press("ArrowLeft");
  assert.equal(await (await row()).getAttribute("aria-rowindex"), top);
  await page.keyboard.press("Enter");
  await page.waitForURL((to) => to.hash.startsWith("#/cob/"));
  await context.close();
});

test("the matrix by the keyboard", { skip, timeout: 60_000 }, async () => {
  const { page, context } = await open();
  await go(page, "#/matrix?by=object");
  const grid = page.locator(".matrix");
  await grid.focus();
  for (let at = 0; at < 60; at++) {
    const cell = page.locator(`#${await grid.getAttribute("aria-activedescendant")}`);
    if (!/not there$/.test(await cell.textContent())) break;
    await page.keyboard.press("ArrowRight");
  }
  await page.keyboard.press("Enter");
  await page.waitForURL((to) => to.hash.startsWith("#/cob/"));
  await context.close();
});

test("a filter stays in the address", { skip, timeout: 60_000 }, async () => {
  const { page, context } = await open();
  await go(page, "#/objects");
  await page.getByRole("searchbox", { name: "Filter by name, kind or state" }).fill("server");
  await page.waitForTimeout(200);
  assert.match(page.url(), /q=server/);
  const rows = await page.locator(".objects").getAttribute("aria-rowcount");
  await page.reload();
  await page.locator(".objects").waitFor({ timeout: LONG });
  assert.equal(await page.locator(".objects").getAttribute("aria-rowcount"), rows);
  await context.close();
});

test("a destructive order shows its effect and asks for the name", { skip, timeout: 60_000 }, async () => {
  const { page, context, faults } = await open();
  const object = await anyObject(page);
  await go(page, `#/cob/${object}`);
  const stop = page.getByRole("button", { name: "Stop…" });
  if ((await stop.count()) > 0) {
    await stop.click();
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    const give = dialog.getByRole("button", { name: "Stop", exact: true });
    assert.ok(await give.isDisabled());
    await dialog.locator(".effect .interruptions, .effect .trouble, .effect p").first().waitFor({ timeout: LONG });
    await dialog.getByRole("textbox").fill(object);
    assert.ok(await give.isEnabled());
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  }
  assert.deepEqual(faults, []);
  await context.close();
});

/** The first line of the stream: the snapshot. */
async function snapshot() {
  const { origin, hash } = new URL(url);
  const controller = new AbortController();
  const authorization = `Bearer ${hash.replace("#key=", "")}`;
  const response = await fetch(`${origin}/api/stream`, { headers: { authorization }, signal: controller.signal });
  let text = "";
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    if (text.includes("\n")) break;
  }
  controller.abort();
  return text.slice(0, text.indexOf("\n") + 1);
}

test("a lost stream is said, and the picture comes back", { skip, timeout: 120_000 }, async () => {
  const { page, context, faults } = await open();
  const body = await snapshot();
  // The stream ends after its snapshot; later requests fail until the connection is back.
  let requests = 0;
  let back = false;
  await page.route("**/api/stream", (route) => {
    requests++;
    if (back) return route.continue();
    if (requests === 1) return route.fulfill({ contentType: "application/x-ndjson", body });
    return route.abort();
  });
  const object = await anyObject(page);
  await go(page, `#/cob/${object}`);
  await page.reload();
  await page.locator(".banner").waitFor({ timeout: 30_000 });
  await page.waitForTimeout(1500);
  assert.match(await page.locator(".banner").textContent(), /This picture is old/);
  assert.equal(await page.locator("main.old").count(), 1);
  assert.match(await page.title(), /^old/);
  const time = () => page.locator("main .title time").first().textContent();
  const before = await time();
  await page.waitForTimeout(2500);
  assert.equal(await time(), before, "times stand still while the picture is old");
  back = true;
  await page.getByRole("button", { name: "Try now" }).click();
  await page.locator(".banner").waitFor({ state: "detached", timeout: 30_000 });
  assert.equal(await page.locator("main.old").count(), 0);
  assert.deepEqual(faults, []);
  await context.close();
});

test("after the sleep of the computer the page asks again", { skip, timeout: 60_000 }, async () => {
  const { page, context, faults } = await open();
  let requests = 0;
  page.on("request", (request) => {
    if (request.url().endsWith("/api/stream")) requests++;
  });
  await page.clock.install();
  await page.reload();
  await page.locator("main .view").waitFor({ timeout: LONG });
  assert.equal(requests, 1);
  await page.clock.fastForward("01:00:00");
  for (let at = 0; at < 50 && requests < 2; at++) {
    await page.clock.runFor(1000);
    await page.waitForTimeout(100);
  }
  assert.equal(requests, 2);
  await page.locator(".link-live").waitFor({ timeout: LONG });
  assert.deepEqual(faults, []);
  await context.close();
});

test("the switch of the colours", { skip, timeout: 60_000 }, async () => {
  const { page, context } = await open();
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await back();
  await page.getByRole("button", { name: "Dark colours" }).click();
  assert.notEqual(await back(), before);
  await page.reload();
  await page.locator("main .view").waitFor({ timeout: LONG });
  assert.notEqual(await back(), before);
  await page.getByRole("button", { name: "Light colours" }).click();
  assert.equal(await back(), before);
  await context.close();
});

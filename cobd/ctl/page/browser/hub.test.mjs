// Tests of the hub's page in a real browser, against a running hub with the tenant `web`; see tests/hub-page.sh.
//   COB_HUB_URL=http://127.0.0.1:PORT node --test browser/hub.test.mjs
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { findings, launch, open as openIn, settled, tabTo } from "./tools.mjs";

const url = process.env.COB_HUB_URL;
const skip = url ? false : "COB_HUB_URL is not set";
/** A job creates machines and switches hosts. */
const JOB = 120_000;

let browser;
before(async () => {
  if (url) browser = await launch();
});
after(() => browser?.close());

/** A new browser profile with the log-in of a user. */
async function logIn(user, options = {}) {
  const opened = await openIn(browser, { to: url, wait: false, ...options });
  const { page } = opened;
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(`password of ${user.split("/").at(-1)}`);
  await page.getByRole("button", { name: "Log in", exact: true }).click();
  await page.locator(".top nav").waitFor();
  return opened;
}

async function view(page, hash) {
  await page.evaluate((to) => {
    location.hash = to;
  }, hash);
  await page.locator("main .view").waitFor();
  await settled(page);
}

const shot = (page, name) => (process.env.COB_SHOTS ? page.screenshot({ path: `${process.env.COB_SHOTS}/${name}.png` }) : undefined);

/** Opens an operation of the cluster, and waits for its plan. */
async function planned(page, button, fill = async () => {}) {
  await page.getByRole("group", { name: "Operations" }).getByRole("button", { name: button, exact: true }).click();
  const dialog = page.getByRole("dialog");
  await fill(dialog);
  await dialog.getByRole("button", { name: "Show the plan" }).click();
  await dialog.locator(".plan").waitFor({ timeout: JOB });
  return dialog;
}

const ended = (page, state) => page.locator(".head .class-word", { hasText: state }).waitFor({ timeout: JOB });

/** Sends a request in the session of the page. */
async function ask(page, method, path, body) {
  const answer = await page.evaluate(
    async ([method, path, body]) => {
      const headers = { authorization: `Bearer ${sessionStorage.getItem("cob-hub-token")}`, "content-type": "application/json" };
      const response = await fetch(`/v1/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
      return { ok: response.ok, text: await response.text() };
    },
    [method, path, body],
  );
  assert.ok(answer.ok, `${method} ${path}: ${answer.text}`);
  return answer.text ? JSON.parse(answer.text) : undefined;
}

/** The view has no finding of axe, at 390 pixels it is not wider than the window, and it is photographed in both sizes. */
async function looksRight(page, name) {
  for (const width of [1400, 390]) {
    await page.setViewportSize({ width, height: 900 });
    await shot(page, `${name}-${width}`);
    assert.deepEqual(await findings(page), [], `${name} at ${width} pixels`);
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wider <= 0, `${name} is ${wider} pixels too wide`);
  }
  await page.setViewportSize({ width: 1400, height: 900 });
}

const closed = (page) => page.getByRole("dialog").waitFor({ state: "detached" });
const rows = (page) => page.locator("table.jobs tbody tr");

test("a provider of identities lets its person in, and nobody else", { skip }, async () => {
  const { page, context, faults } = await openIn(browser, { to: url, wait: false });
  const elsewhere = page.getByRole("region", { name: "Other log-ins" });
  const leave = async () => {
    await elsewhere.getByLabel("Tenant").fill("web");
    await elsewhere.getByRole("button", { name: "Log in with company" }).click();
    await page.getByText("I am ann").waitFor();
  };
  await elsewhere.waitFor();
  await looksRight(page, "hub-log-in-elsewhere");
  // A person changes their mind.
  await leave();
  await page.getByText("Cancel").click();
  await page.getByRole("alert").waitFor();
  assert.match(await page.getByRole("alert").textContent(), /company refuses the log-in: access_denied/);
  assert.equal(new URL(page.url()).search, "");
  // The log-in of another tab does not count here.
  await leave();
  const back = await page.getByText("I am ann").getAttribute("href");
  const other = await context.newPage();
  await other.goto(back);
  await other.getByRole("alert").waitFor();
  assert.match(await other.getByRole("alert").textContent(), /this log-in was not begun in this tab/);
  await other.close();
  await page.getByText("I am ann").click();
  await page.locator(".top nav").waitFor();
  assert.equal(new URL(page.url()).search, "");
  assert.match(await page.locator(".top .tools").textContent(), /web\/ann/);
  assert.deepEqual(faults, []);
  await context.close();
});

test("a wrong password is refused, a right one opens the clusters", { skip }, async () => {
  const { page, context, faults } = await openIn(browser, { to: url, wait: false });
  await page.getByLabel("User").fill("web/ann");
  await page.getByLabel("Password").fill("a wrong password");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  assert.match(await page.getByRole("alert").textContent(), /the user or the password is wrong/);
  assert.deepEqual(await findings(page), []);
  await shot(page, "hub-log-in");
  await page.getByLabel("Password").fill("password of ann");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Clusters" }).waitFor();
  await page.reload();
  await page.getByRole("heading", { name: "Clusters" }).waitFor();
  // The session is this tab's alone, and its token is nowhere but in its memory.
  const other = await context.newPage();
  await other.goto(url);
  await other.getByRole("button", { name: "Log in", exact: true }).waitFor();
  assert.deepEqual(await context.cookies(), []);
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("button", { name: "Log in", exact: true }).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test("a user creates, changes and deletes a cluster by the page alone", { skip }, async () => {
  const { page, context, faults } = await logIn("web/ann");
  await page.getByRole("link", { name: "New cluster" }).click();
  await page.getByRole("radio", { name: "site" }).check();
  await page.getByLabel("Name").fill("shop");
  await page.getByRole("textbox", { name: /^Nodes/ }).fill("9");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.getByRole("button", { name: "Create shop" }).waitFor({ timeout: JOB });
  await page.getByRole("button", { name: "Create shop" }).click();
  await page.getByRole("alert").waitFor();
  assert.match(await page.getByRole("alert").textContent(), /the quota of the tenant is 6 machines/);
  await page.getByRole("textbox", { name: /^Nodes/ }).fill("2");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.getByRole("button", { name: "Create shop" }).waitFor({ timeout: JOB });
  assert.match(await page.locator(".plan").textContent(), /creates 2 machines: shop-1 and shop-2.*start web on shop-1 and shop-2/);
  await shot(page, "hub-create");
  assert.deepEqual(await findings(page), []);
  await page.getByRole("button", { name: "Create shop" }).click();
  await page.getByRole("heading", { name: /^Job \d+: create$/ }).waitFor();
  await ended(page, "succeeded");
  assert.match(await page.locator("pre.log").textContent(), /./);
  await shot(page, "hub-job");
  assert.deepEqual(await findings(page), []);

  await page.locator(".head").getByRole("link", { name: "shop" }).click();
  await page.locator("tr", { hasText: "shop-2" }).getByText("confirmed").waitFor();
  await shot(page, "hub-cluster");
  assert.deepEqual(await findings(page), []);
  let dialog = await planned(page, "Resize", (form) => form.getByLabel("Nodes").fill("3"));
  assert.match(await dialog.locator(".plan").textContent(), /creates 1 machine: shop-3/);
  // Somebody else changes the cluster after the plan.
  const { page: other, context: theirs } = await logIn("web/ben");
  await view(other, "#/cluster/shop");
  const stop = await planned(other, "Restart");
  await stop.getByLabel(/^Type/).fill("shop");
  await stop.getByRole("button", { name: "Restart" }).click();
  await ended(other, "succeeded");
  await theirs.close();
  await dialog.getByRole("button", { name: "Resize" }).click();
  await dialog.getByRole("alert").waitFor();
  assert.match(await dialog.getByRole("alert").textContent(), /has changed since the plan/);
  await dialog.getByRole("button", { name: "Show the plan" }).click();
  await dialog.locator(".plan").waitFor({ timeout: JOB });
  await dialog.getByRole("button", { name: "Resize" }).click();
  await ended(page, "succeeded");

  await view(page, "#/cluster/shop");
  await page.getByRole("button", { name: "Replace shop-2" }).click();
  dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Show the plan" }).click();
  await dialog.locator(".plan").waitFor({ timeout: JOB });
  assert.ok(await dialog.getByRole("button", { name: "Replace" }).isDisabled(), "a person types the name first");
  await dialog.getByLabel(/^Type/).fill("shop");
  await dialog.getByRole("button", { name: "Replace" }).click();
  await ended(page, "succeeded");

  await view(page, "#/");
  await page.locator("tr", { hasText: "shop" }).getByText("active").waitFor();
  assert.match(await page.locator(".usage").textContent(), /3 of 6 machines/);
  await shot(page, "hub-clusters");

  await view(page, "#/cluster/shop");
  dialog = await planned(page, "Delete");
  await dialog.getByLabel(/^Type/).fill("shop");
  await shot(page, "hub-delete");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await ended(page, "succeeded");
  await view(page, "#/");
  await page.getByText("There are no clusters yet.").waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test("an administrator edits a template, and the hub refuses a wrong one", { skip }, async () => {
  const { page, context, faults } = await logIn("web/ben");
  await view(page, "#/entity/templates/site");
  await page.getByRole("button", { name: "Edit", exact: true }).click();
  const text = page.getByLabel("As JSON");
  const right = await text.inputValue();
  await text.fill(right.replace('"web"', '"wbe"'));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").waitFor({ timeout: JOB });
  assert.match(await page.getByRole("alert").textContent(), /unknown service `wbe`.*did you mean `web`/);
  await text.fill(right.replace("A web site", "The web site"));
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("pre.output", { hasText: "The web site" }).waitFor({ timeout: JOB });
  assert.equal(await page.locator("section", { hasText: "Versions" }).getByRole("button").count(), 2);
  await shot(page, "hub-entity");
  assert.deepEqual(await findings(page), []);

  // Somebody else writes a version while this one is edited.
  await page.getByRole("button", { name: "Edit", exact: true }).click();
  const { page: other, context: theirs } = await logIn("web/ben");
  await view(other, "#/entity/templates/site");
  await other.getByRole("button", { name: "Edit", exact: true }).click();
  await other.getByLabel("As JSON").fill(right.replace("A web site", "Their web site"));
  await other.getByRole("button", { name: "Save" }).click();
  await other.locator("pre.output", { hasText: "Their web site" }).waitFor({ timeout: JOB });
  await text.fill(right.replace("A web site", "My web site"));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").waitFor({ timeout: JOB });
  assert.match(await page.getByRole("alert").textContent(), /ben has written a newer version/);
  assert.match(await text.inputValue(), /My web site/, "the text is not lost");
  await theirs.close();
  assert.deepEqual(faults, []);
  await context.close();
});

test("an administrator downloads the catalogue, and imports it as Coopr's", { skip }, async () => {
  const { page, context, faults } = await logIn("web/ben");
  await view(page, "#/catalogue");
  await page.getByRole("button", { name: "Export" }).click();
  let dialog = page.getByRole("dialog");
  await dialog.getByLabel("Form").selectOption("coopr");
  const [download] = await Promise.all([page.waitForEvent("download"), dialog.getByRole("button", { name: "Download" }).click()]);
  const document = JSON.parse(readFileSync(await download.path(), "utf8"));
  const site = document.clustertemplates.find((template) => template.name === "site");
  assert.ok(site, JSON.stringify(document));
  await dialog.getByRole("status").getByText(/`cobs` in `web` has no counterpart in Coopr/).waitFor();
  assert.deepEqual(await findings(page), []);
  await shot(page, "hub-export");
  await dialog.getByRole("button", { name: "Close" }).click();

  const choose = (content) =>
    dialog.getByLabel("File").setInputFiles({ name: "export.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(content)) });
  await page.getByRole("button", { name: "Import" }).click();
  dialog = page.getByRole("dialog");
  await dialog.getByLabel("Form").selectOption("coopr");
  assert.ok(await dialog.getByRole("button", { name: "Import" }).isDisabled(), "no file is chosen");
  await choose({ clustertemplates: [{ name: "kiosk", defaults: { services: ["wbe"] } }] });
  await dialog.getByRole("button", { name: "Import" }).click();
  assert.match(await dialog.getByRole("alert").textContent({ timeout: JOB }), /unknown service `wbe`/);
  await choose({ clustertemplates: [{ name: "kiosk", label: "Kiosk", defaults: { services: ["web"] } }] });
  await dialog.getByRole("button", { name: "Import" }).click();
  await dialog.getByRole("status").getByText(/`label` in `kiosk` was not understood/).waitFor({ timeout: JOB });
  await dialog.getByRole("button", { name: "Close" }).click();
  await page.getByRole("link", { name: "kiosk" }).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test("users, quotas, tokens and the audit", { skip }, async () => {
  const { page, context, faults } = await logIn("root");
  await view(page, "#/people");
  await page.getByRole("button", { name: "New tenant" }).click();
  await page.getByLabel("Name").fill("lab");
  await page.getByRole("group", { name: "The whole tenant" }).getByLabel("Most machines").fill("4");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  const lab = page.locator("section", { hasText: "Tenant lab" });
  await lab.getByText("at most 4 machines").waitFor();
  await lab.getByRole("button", { name: "New user" }).click();
  await page.getByLabel("Name").fill("eve");
  await page.getByRole("dialog").getByLabel("Password").fill("password of eve");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await lab.getByRole("rowheader", { name: "eve" }).waitFor();
  await shot(page, "hub-people");
  assert.deepEqual(await findings(page), []);

  // The new user sees nothing of the other tenant.
  const { page: hers, context: other } = await logIn("lab/eve");
  assert.equal(await hers.getByRole("link", { name: "Audit" }).count(), 0);
  await view(hers, "#/cluster/shop");
  assert.match(await hers.getByRole("alert").first().textContent(), /no cluster "shop"/);
  await view(hers, "#/people");
  assert.doesNotMatch(await hers.locator("main").textContent(), /web/);
  await view(hers, "#/account");
  await hers.getByRole("button", { name: "New token" }).click();
  await hers.getByLabel("Purpose").fill("laptop");
  await hers.getByRole("button", { name: "Make the token" }).click();
  await hers.getByText(/^cob_[0-9a-f]{64}$/).waitFor();
  await hers.getByRole("button", { name: "Done" }).click();
  await hers.getByRole("row", { name: /laptop/ }).waitFor();
  await shot(hers, "hub-account");
  assert.deepEqual(await findings(hers), []);
  // A new password ends the session.
  await lab.getByRole("button", { name: "Password of eve" }).click();
  await page.getByRole("dialog").getByLabel("Password").fill("another password");
  await page.getByRole("button", { name: "Set the password" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await view(hers, "#/jobs").catch(() => {});
  await hers.getByRole("button", { name: "Log in", exact: true }).waitFor();
  await other.close();

  await view(page, "#/audit");
  await page.getByRole("row", { name: /lab\/eve.*log-in.*allowed/ }).first().waitFor();
  await page.getByRole("row", { name: /web\/ann.*refused: the user or the password is wrong/ }).first().waitFor();
  await shot(page, "hub-audit");
  assert.deepEqual(await findings(page), []);
  await page.getByLabel("Tenant").selectOption("lab");
  await view(page, "#/");
  assert.match(await page.locator(".usage").textContent(), /0 of 4 machines/);
  assert.deepEqual(faults, []);
  await context.close();
});

test("a rule pauses jobs; filters, pages and priorities show and order them", { skip }, async () => {
  const { page: root, context: roots } = await logIn("root");
  await view(root, "#/queue");
  await root.getByText("There are no rules.").waitFor();
  await root.getByRole("button", { name: "New rule" }).click();
  const dialog = root.getByRole("dialog");
  await dialog.getByLabel("Name").fill("freeze");
  await dialog.getByLabel("Reason").fill("audit until Friday");
  await dialog.getByText("Effect: pause all jobs.").waitFor();
  await looksRight(root, "hub-rule");
  await dialog.getByRole("button", { name: "Save the rule" }).click();
  await root.getByRole("status").getByText("The rule freeze pauses all jobs: audit until Friday").waitFor();
  await looksRight(root, "hub-queue");

  // The template offers the services of its partial, too.
  const { page, context, faults } = await logIn("web/ann");
  await view(page, "#/create");
  await page.getByRole("radio", { name: "site" }).check();
  await page.getByLabel("Name").fill("blog");
  await page.getByRole("textbox", { name: /^Nodes/ }).fill("1");
  assert.ok(await page.getByRole("checkbox", { name: "web" }).isChecked());
  await page.getByRole("checkbox", { name: "log" }).check();
  // The session ends: after another log-in, the form is as it was.
  await ask(page, "DELETE", "session");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.getByText("The session of web/ann has ended.").waitFor();
  await page.getByLabel("Password").fill("password of ann");
  await page.keyboard.press("Enter");
  await page.getByRole("checkbox", { name: "log" }).waitFor();
  assert.ok(await page.getByRole("checkbox", { name: "log" }).isChecked());
  assert.equal(await page.getByLabel("Name").inputValue(), "blog");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.getByText(/start log on blog-1/).waitFor({ timeout: JOB });
  await looksRight(page, "hub-services");
  await page.getByRole("button", { name: "Create blog" }).click();
  await page.getByRole("heading", { name: /^Job \d+: create$/ }).waitFor();
  await page.getByText("the rule freeze pauses it: audit until Friday").waitFor();
  const first = Number(/\d+/.exec(await page.getByRole("heading", { name: /^Job/ }).textContent())[0]);

  // The hub decides which priority a person may give.
  await page.getByRole("button", { name: "Set the priority" }).click();
  await page.getByRole("textbox", { name: /^Priority/ }).fill("-5");
  await page.getByRole("dialog").getByRole("button", { name: "Set the priority" }).click();
  assert.match(await page.getByRole("dialog").getByRole("alert").textContent(), /a user gives the priorities 0 to 19, not -5/);
  await page.getByRole("textbox", { name: /^Priority/ }).fill("seven");
  assert.ok(await page.getByRole("dialog").getByRole("button", { name: "Set the priority" }).isDisabled());
  await page.getByRole("textbox", { name: /^Priority/ }).fill("7");
  await page.getByRole("dialog").getByRole("button", { name: "Set the priority" }).click();
  await closed(page);
  await page.getByText("priority 7").waitFor();
  await looksRight(page, "hub-job-waits");

  const jobs = [];
  const restart = { operation: "restart", services: [] };
  for (let at = 0; at < 49; at++) jobs.push((await ask(page, "POST", "clusters/blog/operations", restart)).job);
  jobs.push((await ask(page, "POST", "clusters", { name: "wiki", wanted: { template: "site", nodes: 1 } })).job);
  const last = (await ask(page, "POST", "clusters/wiki/operations", restart)).job;
  jobs.push(last);

  // 52 jobs wait: a page and two jobs. The address keeps filters and page.
  await view(page, "#/jobs");
  await page.getByLabel("State").selectOption("queued");
  await page.getByLabel("User").fill("web/ann");
  await page.keyboard.press("Enter");
  await page.waitForURL(/#\/jobs\?state=queued&user=web%2Fann$/);
  await rows(page).nth(49).waitFor();
  assert.equal(await rows(page).count(), 50);
  await page.locator("tr", { hasText: `it waits for job ${last - 1} of the same cluster` }).getByRole("link", { name: `job ${last - 1}` }).waitFor();
  await looksRight(page, "hub-jobs");
  await page.getByRole("link", { name: "Older jobs" }).click();
  await page.waitForURL(new RegExp(`before=${jobs[1]}$`));
  await page.getByRole("rowheader", { name: `job ${first}`, exact: true }).waitFor();
  await page.reload();
  await page.getByRole("rowheader", { name: `job ${first}`, exact: true }).waitFor();
  assert.equal(await page.getByLabel("State").inputValue(), "queued");
  await page.getByRole("link", { name: "Newer jobs" }).click();
  await page.getByRole("rowheader", { name: `job ${last}`, exact: true }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Jobs", "the focus is on the page of jobs");
  await page.getByLabel("Cluster").fill("wiki");
  await page.keyboard.press("Enter");
  await page.waitForURL(/cluster=wiki/);
  await rows(page).nth(2).waitFor({ state: "detached" });
  await rows(page).nth(1).waitFor();
  assert.equal(await rows(page).count(), 2);
  await page.getByRole("button", { name: `Priority 0 of job ${last}: change` }).click();
  await page.getByRole("textbox", { name: /^Priority/ }).fill("19");
  await page.keyboard.press("Enter");
  await closed(page);
  await page.getByRole("button", { name: `Priority 19 of job ${last}: change` }).waitFor();
  await page.getByLabel("Cluster").fill("nowhere");
  await page.keyboard.press("Enter");
  await page.getByText("No job matches the filters.").waitFor();
  await page.getByRole("button", { name: "Remove the filters" }).click();
  await page.waitForURL(/#\/jobs$/);

  // A super administrator sees the jobs of all tenants, and the address leads to a tenant.
  await root.getByRole("link", { name: "Show jobs that have not ended" }).click();
  await root.getByRole("link", { name: "web/wiki" }).first().click();
  await root.getByRole("heading", { name: "wiki" }).waitFor();
  assert.equal(await root.getByRole("combobox", { name: "Tenant" }).inputValue(), "web");
  await view(root, "#/jobs?tenant=lab&state=open");
  await root.getByText("No job matches the filters.").waitFor();
  await root.getByRole("combobox", { name: "Tenant" }).selectOption("");
  await root.waitForURL(/tenant=&state=open/);
  await rows(root).nth(49).waitFor();

  // A drain is the first sentence, and orders are refused with its reason.
  await view(root, "#/queue");
  await root.getByRole("button", { name: "Drain the hub" }).click();
  await root.getByLabel("Reason").fill("the hub moves at 18:00");
  await root.getByRole("dialog").getByRole("button", { name: "Drain the hub" }).click();
  await root.getByRole("status").getByText("The hub is drained: it accepts no new orders.").waitFor();
  await looksRight(root, "hub-drained");
  await page.getByRole("status").getByText(/drained.*the hub moves at 18:00/).waitFor();
  await page.goto(`${url}/#/job/${last}`);
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByRole("button", { name: "Cancel the job" }).click();
  await ended(page, "canceled");
  await root.getByRole("button", { name: "Accept orders again" }).click();
  await root.getByRole("button", { name: "Accept orders", exact: true }).click();
  await root.getByText("The hub accepts new orders.").waitFor();

  for (const job of [...jobs.slice(0, -1).reverse(), first]) await ask(page, "POST", `jobs/${job}/cancel`, {});
  await root.getByRole("button", { name: "Remove freeze" }).click();
  await root.getByRole("button", { name: "Remove the rule" }).click();
  await root.getByText("There are no rules.").waitFor();
  await roots.close();

  // The canceled creation is ordered again, with its values.
  await view(page, `#/job/${first}`);
  await page.getByRole("link", { name: "Try again" }).click();
  await page.getByRole("checkbox", { name: "log" }).waitFor();
  assert.ok(await page.getByRole("checkbox", { name: "log" }).isChecked());
  assert.equal(await page.getByLabel("Name").inputValue(), "blog");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await page.getByRole("button", { name: "Create blog" }).click({ timeout: JOB });
  await page.getByRole("heading", { name: /^Job \d+: create$/ }).waitFor();
  await ended(page, "succeeded");
  assert.deepEqual(faults, []);
  await context.close();
});

test("an administrator keeps rules of the tenant; a job is tried again", { skip }, async () => {
  const { page: ben, context: bens } = await logIn("web/ben");
  const { page, context, faults } = await logIn("web/ann");
  await view(ben, "#/queue");
  assert.equal(await ben.getByRole("button", { name: "Drain the hub" }).count(), 0);
  await view(page, "#/queue");
  assert.equal(await page.getByRole("button", { name: "New rule" }).count(), 0);
  await ben.getByRole("button", { name: "New rule" }).click();
  await ben.getByLabel("Name").fill("small-steps");
  await ben.getByLabel("Effect").selectOption("reject");
  await ben.getByRole("checkbox", { name: "resize" }).check();
  await ben.getByText("More conditions").click();
  await ben.getByRole("textbox", { name: /^Users/ }).fill("eve");
  await ben.getByRole("button", { name: "Save the rule" }).click();
  assert.match(await ben.getByRole("dialog").getByRole("alert").textContent(), /there is no user "eve"/);
  await ben.getByRole("textbox", { name: /^Users/ }).fill("ann");
  await ben.getByLabel("Effect").selectOption("pause");
  await ben.getByRole("button", { name: "Save the rule" }).click();
  await closed(ben);
  await ben.getByRole("row", { name: /small-steps.*of the tenant web.*pause jobs of the user web\/ann for the operation resize/ }).waitFor();
  await page.getByRole("row", { name: /small-steps.*of the tenant web/ }).waitFor();

  const wanted = { template: "site", nodes: 1, services: ["web", "log"] };
  const { job } = await ask(page, "POST", "clusters", { name: "wall", wanted });
  await view(page, `#/job/${job}`);
  await ended(page, "succeeded");
  await view(page, "#/cluster/wall");
  let dialog = await planned(page, "Resize", (form) => form.getByLabel("Nodes").fill("2"));
  await dialog.getByRole("button", { name: "Resize" }).click();
  await page.getByText("the rule web/small-steps pauses it").waitFor();
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByRole("button", { name: "Cancel the job" }).click();
  await ended(page, "canceled");
  await ben.getByRole("button", { name: "Change web/small-steps" }).click();
  assert.equal(await ben.getByRole("textbox", { name: /^Users/ }).inputValue(), "web/ann");
  await ben.getByLabel("Effect").selectOption("continue");
  await ben.getByRole("button", { name: "Save the rule" }).click();
  await ben.getByRole("row", { name: /small-steps.*of the tenant web.*off/ }).waitFor();
  await page.getByRole("button", { name: "Try again" }).click();
  dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Nodes").inputValue(), "2", "the values of the earlier order");
  await dialog.getByRole("button", { name: "Show the plan" }).click();
  await dialog.locator(".plan").waitFor({ timeout: JOB });
  await looksRight(page, "hub-try-again");
  const earlier = page.url();
  await dialog.getByRole("button", { name: "Resize" }).click();
  await page.waitForURL((now) => now.href !== earlier);
  await ended(page, "succeeded");

  // A service is chosen, not typed.
  await view(page, "#/cluster/wall");
  dialog = await planned(page, "Services", (form) => form.getByRole("checkbox", { name: "log" }).uncheck());
  await dialog.getByLabel(/^Type/).fill("wall");
  await looksRight(page, "hub-change-services");
  await dialog.getByRole("button", { name: "Change services" }).click();
  await page.getByRole("heading", { name: /^Job \d+: remove log/ }).waitFor();
  await ended(page, "succeeded");

  // The page shows the refusal of a person who has lost the right meanwhile.
  const { page: root, context: roots } = await logIn("root");
  const rank = (administrator) => ask(root, "POST", "directory", { "set-administrator": { tenant: "web", user: "ben", administrator } });
  await ben.getByRole("button", { name: "Remove web/small-steps" }).click();
  await rank(false);
  await ben.getByRole("button", { name: "Remove the rule" }).click();
  assert.match(await ben.getByRole("dialog").getByRole("alert").textContent(), /only administrators keep rules of jobs/);
  await rank(true);
  await ben.getByRole("button", { name: "Remove the rule" }).click();
  await ben.getByText("There are no rules.").waitFor();
  await roots.close();
  await bens.close();

  await view(page, "#/cluster/wall");
  dialog = await planned(page, "Delete");
  await dialog.getByLabel(/^Type/).fill("wall");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await ended(page, "succeeded");
  assert.deepEqual(faults, []);
  await context.close();
});

for (const colorScheme of ["light", "dark"]) {
  test(`no view has a finding of axe at 390 pixels (${colorScheme})`, { skip }, async () => {
    const { page, context, faults } = await logIn("web/ben", { width: 390, height: 800, colorScheme });
    for (const hash of ["#/", "#/create", "#/jobs", "#/jobs?state=failed&cluster=nothing", "#/queue", "#/machines", "#/catalogue", "#/people", "#/audit", "#/account", "#/entity/services/web", "#/nothing"]) {
      await view(page, hash);
      assert.deepEqual(await findings(page), [], hash);
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wider <= 0, `${hash} is ${wider} pixels too wide`);
      await shot(page, `hub-390-${colorScheme}-${hash.replace(/[^a-z]+/g, "-")}`);
    }
    assert.deepEqual(faults, []);
    await context.close();
  });
}

test("the log-in and an operation work with the keyboard alone", { skip }, async () => {
  const { page, context, faults } = await openIn(browser, { to: url, wait: false });
  assert.ok(await tabTo(page, 'input[name="user"]'));
  await page.keyboard.type("web/ben");
  assert.ok(await tabTo(page, 'input[name="password"]'));
  await page.keyboard.type("password of ben");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Clusters" }).waitFor();
  assert.ok(await tabTo(page, 'a[href="#/create"]'));
  await page.keyboard.press("Enter");
  await page.getByRole("radio", { name: "site" }).waitFor();
  assert.ok(await tabTo(page, 'input[type="radio"]'));
  await page.keyboard.press("Space");
  await page.getByLabel("Name").waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

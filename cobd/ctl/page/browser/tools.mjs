// Shared by the browser tests.
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const url = process.env.COB_PAGE_URL;
export const LONG = 15_000;
const executablePath = process.env.COB_CHROMIUM ?? "/usr/bin/chromium";
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

export const launch = () => chromium.launch({ executablePath, args: ["--no-sandbox"] });

/** A page of a fresh browser profile, with all its errors and violations of the content security policy. */
export async function open(browser, { width = 1400, height = 900, colorScheme = "light", to = url, wait = true } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" && !/Failed to load resource/.test(text)) faults.push(text);
  });
  await page.addInitScript({ path: axe });
  await page.goto(to);
  if (wait) await page.locator("main .view").waitFor({ timeout: LONG });
  return { page, context, faults };
}

export async function go(page, hash) {
  await page.evaluate((to) => {
    location.hash = to;
  }, hash);
  await page.locator("main .view").waitFor({ timeout: LONG });
}

/** Waits until all questions of the view have answers. */
export async function settled(page) {
  await page.waitForTimeout(300);
  for (let at = 0; at < 75 && (await page.locator(".loading").count()) > 0; at++) await page.waitForTimeout(200);
}

/** The findings of axe. */
export function findings(page) {
  return page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
    return violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.html} ${node.failureSummary}`).slice(0, 3).join(" | ")}`);
  });
}

/** Presses Tab until the focus is in an element of the selector; false: it was not reached. */
export async function tabTo(page, selector, most = 80) {
  for (let at = 0; at < most; at++) {
    await page.keyboard.press("Tab");
    const { there, ring } = await page.evaluate((wanted) => {
      const element = document.activeElement;
      return { there: element.closest(wanted) !== null, ring: getComputedStyle(element).outlineStyle };
    }, selector);
    if (ring !== "solid") throw new Error("the focus is not visible");
    if (there) return true;
  }
  return false;
}

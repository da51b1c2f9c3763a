// Light and dark: the system's choice, or the choice of the switch; colours for drawings.
import { computed, signal } from "@preact/signals";
import { ofTheme } from "./words";

export type Theme = "system" | "light" | "dark";
const STORED = "cob-page-theme";

function stored(): Theme {
  const value = localStorage.getItem(STORED);
  return value === "light" || value === "dark" ? value : "system";
}

export const theme = signal<Theme>(stored());
const dark = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(dark.matches);
dark.addEventListener("change", () => (systemIsDark.value = dark.matches));

export const isDark = computed(() => theme.value === "dark" || (theme.value === "system" && systemIsDark.value));

theme.subscribe((value) => {
  if (value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
});

export function nextTheme(): void {
  const next: Theme = isDark.value ? "light" : "dark";
  theme.value = next === (systemIsDark.value ? "dark" : "light") ? "system" : next;
  if (theme.value === "system") localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, theme.value);
}

/** The colours of the style sheet, for drawings on a canvas. */
export interface Colors {
  classes: string[];
  soft: string[];
  text: string;
  muted: string;
  line: string;
  strong: string;
  surface: string;
  back: string;
  accent: string;
  onColor: string;
}

export const colors = computed<Colors>(() => {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string) => ofTheme(style.getPropertyValue(`--${name}`), isDark.value);
  const names = ["settled", "moving", "waiting", "failed", "stopped", "unknown"];
  return {
    classes: names.map(get),
    soft: names.map((name) => get(`${name}-soft`)),
    text: get("text"),
    muted: get("muted"),
    line: get("line"),
    strong: get("line-strong"),
    surface: get("surface"),
    back: get("back"),
    accent: get("accent"),
    onColor: get("on-color"),
  };
});

/** Whether the window is as narrow as a phone. */
const narrowQuery = matchMedia("(max-width: 640px)");
export const narrow = signal(narrowQuery.matches);
narrowQuery.addEventListener("change", () => (narrow.value = narrowQuery.matches));

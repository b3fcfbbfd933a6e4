// Light, dark, or as the system has it.

import { byId, h } from "./dom";
import { recall, remember } from "./storage";

const NEXT: Record<string, string> = { auto: "light", light: "dark", dark: "auto" };
const SIGNS: Record<string, string> = { auto: "◐", light: "☀", dark: "☾" };

export function startTheme(): void {
  const button = byId("theme");
  const wear = (theme: string): void => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.replaceChildren(h("span", { "aria-hidden": "true" }, SIGNS[theme]!));
    const words = `Colours: ${theme === "auto" ? "the system's" : theme}`;
    button.setAttribute("aria-label", words);
    button.title = `${words} (t)`;
  };
  const kept = recall("theme") ?? "";
  let theme = kept in NEXT ? kept : "auto";
  wear(theme);
  button.addEventListener("click", () => {
    theme = NEXT[theme]!;
    remember("theme", theme);
    wear(theme);
  });
}

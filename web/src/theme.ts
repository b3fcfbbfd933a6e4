// Light, dark, or as the system has it.

import { byId, h, on } from "./dom";

const KEY = "windlass-theme";
const NEXT: Record<string, string> = { auto: "light", light: "dark", dark: "auto" };
const SIGNS: Record<string, string> = { auto: "◐", light: "☀", dark: "☾" };

export function startTheme(): void {
  const button = byId("theme");
  const wear = (theme: string): void => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.replaceChildren(h("span", { "aria-hidden": "true" }, SIGNS[theme] ?? "◐"));
    const words = `Colours: ${theme === "auto" ? "as the system has them" : theme}`;
    button.setAttribute("aria-label", words);
    button.title = `${words} (t)`;
  };
  let theme = localStorage.getItem(KEY) ?? "auto";
  wear(theme);
  on(button, "click", () => {
    theme = NEXT[theme] ?? "auto";
    localStorage.setItem(KEY, theme);
    wear(theme);
  });
}

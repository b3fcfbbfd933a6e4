// What a person prefers, kept by the browser where it keeps anything at all (it may be told not to).

export function recall(key: string): string | null {
  try {
    return localStorage.getItem(`windlass-${key}`);
  } catch {
    return null;
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(`windlass-${key}`, value);
  } catch {
    // It holds until the page is closed.
  }
}

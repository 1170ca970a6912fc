const THEMES = ['system', 'light', 'dark'] as const;
const DENSITIES = ['normal', 'compact'] as const;
export type Theme = (typeof THEMES)[number];
export type Density = (typeof DENSITIES)[number];

export const look = $state({ theme: 'system' as Theme, density: 'normal' as Density });

/** Single-letter shortcuts can be in the way of speech input. */
export const shortcuts = $state({ areOn: true });

export function startTheme(): void {
  look.theme = THEMES.find((theme) => theme === localStorage.getItem('sluicegate.theme')) ?? 'system';
  look.density = DENSITIES.find((density) => density === localStorage.getItem('sluicegate.density')) ?? 'normal';
  shortcuts.areOn = localStorage.getItem('sluicegate.shortcuts') !== 'off';
  show();
}

export function setTheme(theme: Theme): void {
  look.theme = theme;
  localStorage.setItem('sluicegate.theme', theme);
  show();
}

export function setDensity(density: Density): void {
  look.density = density;
  localStorage.setItem('sluicegate.density', density);
  show();
}

export function setShortcuts(areOn: boolean): void {
  shortcuts.areOn = areOn;
  localStorage.setItem('sluicegate.shortcuts', areOn ? 'on' : 'off');
}

/** Returns whether a key is a shortcut, not text. */
export function isShortcut(event: KeyboardEvent): boolean {
  if (!shortcuts.areOn || event.ctrlKey || event.metaKey || event.altKey) return false;
  return !(
    event.target instanceof HTMLElement && event.target.closest('input, textarea, select, dialog, [contenteditable]')
  );
}

function show(): void {
  document.documentElement.dataset.theme = look.theme;
  document.documentElement.dataset.density = look.density;
}

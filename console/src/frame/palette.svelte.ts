/** The state of the command palette and of the list of keys. */
export const palette = $state({
  open: false,
  /** True once the palette takes keys itself: it is loaded when it is first opened. */
  isReady: false,
  /** The text that was typed before that. */
  typed: '',
  keyboard: false,
});

export function closePalette(): void {
  palette.open = palette.isReady = false;
  palette.typed = '';
}

/** Whether the command palette and the list of keys are shown. */
export const palette = $state({
  open: false,
  /** Whether the palette takes keys itself: it is loaded when it is first opened. */
  isReady: false,
  /** What was typed until then. */
  typed: '',
  keyboard: false,
});

export function closePalette(): void {
  palette.open = palette.isReady = false;
  palette.typed = '';
}

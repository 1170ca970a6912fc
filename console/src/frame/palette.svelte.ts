/** Whether the command palette and the list of keys are shown. */
export const palette = $state({ open: false, keyboard: false });

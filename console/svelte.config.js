import { basename } from 'node:path';

// Styles go by the name of their component: it is short, and says in a browser where they come from. A test finds two of one name.
export default { compilerOptions: { runes: true, cssHash: ({ filename }) => basename(filename, '.svelte') } };

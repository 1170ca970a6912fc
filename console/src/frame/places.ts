import type { Key } from '../lib/i18n/index.svelte.ts';
import type { PageName } from '../lib/router.svelte.ts';
import type { IconName } from '../lib/ui/icons.ts';

export interface Place {
  href: string;
  icon: IconName;
  label: Key;
  /** Pages for which this place is the current one. */
  pages: PageName[];
  /** The letter that leads here after a g. */
  letter: string;
  adminOnly?: boolean;
}

/** The sections of the console, in the order of the rail. */
export const PLACES: Place[] = [
  { href: '/', icon: 'overview', label: 'frame.overview', letter: 'o', pages: ['overview'] },
  {
    href: '/apps',
    icon: 'apps',
    label: 'frame.apps',
    letter: 'a',
    pages: ['apps', 'app', 'policy', 'policy-edit', 'policy-new', 'policy-versions', 'policy-deleted'],
  },
  { href: '/keys', icon: 'keys', label: 'frame.keys', letter: 'k', pages: ['keys'] },
  { href: '/whatif', icon: 'whatif', label: 'frame.whatif', letter: 'w', pages: ['whatif'] },
  { href: '/audit', icon: 'audit', label: 'frame.audit', letter: 'u', pages: ['audit'] },
  { href: '/nodes', icon: 'nodes', label: 'frame.nodes', letter: 'n', pages: ['nodes'] },
  { href: '/accounts', icon: 'accounts', label: 'frame.accounts', letter: 'c', pages: ['accounts'], adminOnly: true },
  { href: '/import', icon: 'import', label: 'frame.import', letter: 'i', pages: ['import'] },
  { href: '/settings', icon: 'settings', label: 'frame.settings', letter: 's', pages: ['settings'] },
];

/** The sections that an account has. */
export const placesFor = (isAdmin: boolean): Place[] => PLACES.filter((place) => !place.adminOnly || isAdmin);

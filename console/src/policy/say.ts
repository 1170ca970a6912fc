import { language, t } from '../lib/i18n/index.svelte.ts';
import type { Say } from './words.ts';

/** The language of the page. */
export const say: Say = { t, locale: () => (language() === 'zh' ? 'zh-CN' : 'en-GB') };

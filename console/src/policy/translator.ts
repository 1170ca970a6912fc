import { language, t } from '../lib/i18n/index.svelte.ts';
import type { Translator } from './describe.ts';

/** The translator into the language of the page. */
export const translator: Translator = { t, locale: () => (language() === 'zh' ? 'zh-CN' : 'en-GB') };

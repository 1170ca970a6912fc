import './app.css';
import { mount } from 'svelte';
import App from './App.svelte';
import { startI18n } from './lib/i18n/index.svelte.ts';
import { startRouter } from './lib/router.svelte.ts';
import { session } from './lib/session.svelte.ts';
import { startTheme } from './lib/theme.svelte.ts';

startTheme();
startRouter();
await Promise.all([startI18n(), session.load()]);
mount(App, { target: document.getElementById('console')! });

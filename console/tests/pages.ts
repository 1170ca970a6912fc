import type { Page } from '@playwright/test';

/** A page in one of its states, for the tests that look at all of them. */
export interface View {
  name: string;
  path: string;
  /** The account that looks at it; without one, nobody is signed in. */
  as?: 'ada' | 'bea' | 'vic' | 'cho';
  /** The actions on the page before it is looked at. */
  act?: (page: Page) => Promise<void>;
}

const press = (name: RegExp) => async (page: Page) => page.getByRole('button', { name }).first().click();

/** Changes a policy in the form, and waits until the server has checked it. */
async function fillFirst(page: Page, label: RegExp, value: string): Promise<void> {
  await page.getByRole('textbox', { name: label }).first().fill(value);
  await page
    .getByRole('status')
    .getByText(/^(Checked by the server|服务器已校验|1 error|1 个错误)$/)
    .waitFor();
}

/** Requests of some addresses, one of which has markup for a path. */
export function accessLog(seconds: number): string {
  const line = (second: number) => {
    const at = new Date(Date.UTC(2015, 4, 17, 10, 0, second)).toISOString().slice(11, 19);
    return `10.0.0.${second % 3} - - [17/May/2015:${at} +0000] "GET /a HTTP/1.1" 200 12 "-" "<script>window.hacked=1</script>"\n`;
  };
  return Array.from({ length: seconds }, (_, second) => line(second).repeat(1 + (Math.floor(second / 60) % 3))).join(
    '',
  );
}

/** Sends a log, and turns the limit of the draft down. */
async function compareLog(page: Page): Promise<void> {
  const log = { name: 'access.log', mimeType: 'text/plain', buffer: Buffer.from(`${accessLog(900)}nothing\n`) };
  await page.locator('input[type=file]').setInputFiles(log);
  await page.getByRole('slider').press('ArrowDown');
  await page.getByText(/^(Keys that change the most|变化最多的键)$/).waitFor();
}

/** Configurations of other rate limiters, each with one policy and one note. */
export const EXAMPLES = {
  nginx: 'limit_req_zone $host zone=api:1m rate=10r/s;\nserver { location /api/ { limit_req zone=api burst=20; } }\n',
  sentinel: '[{ "resource": "GET:/pay", "count": 20, "grade": 1, "controlBehavior": 0 }]',
  envoy: 'domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 3 }\n',
  rate_limiter_info: 'name,apps,max_permits,rate,created_by\npay.card,demo,20,5,ada\n',
};

async function previewImport(page: Page): Promise<void> {
  await page.getByRole('checkbox').first().check();
  await page.getByRole('textbox').first().fill(`${EXAMPLES.nginx}include <script>window.hacked=1</script>;\n`);
  await page.getByText(/^(1 policy|1 条策略)$/).waitFor();
}

export const VIEWS: View[] = [
  { name: 'setup', path: '/setup' },
  { name: 'sign-in', path: '/sign-in' },
  { name: 'overview', path: '/', as: 'ada' },
  { name: 'overview-new', path: '/', as: 'cho' },
  { name: 'apps', path: '/apps', as: 'ada' },
  { name: 'app', path: '/apps/demo', as: 'bea' },
  { name: 'app-viewer', path: '/apps/demo', as: 'vic' },
  { name: 'app-empty', path: '/apps/empty', as: 'ada' },
  { name: 'app-hostile', path: '/apps/shop', as: 'bea' },
  { name: 'members', path: '/apps/demo/members', as: 'bea' },
  { name: 'members-viewer', path: '/apps/demo/members', as: 'vic' },
  { name: 'tokens', path: '/apps/shop/tokens', as: 'bea' },
  { name: 'tokens-new', path: '/apps/shop/tokens', as: 'bea', act: press(/^(New token|新建令牌)$/) },
  { name: 'app-audit', path: '/apps/shop/audit', as: 'bea' },
  { name: 'app-code', path: '/apps/demo/code', as: 'bea' },
  { name: 'accounts', path: '/accounts', as: 'ada' },
  { name: 'nodes', path: '/nodes', as: 'ada' },
  { name: 'audit', path: '/audit', as: 'ada', act: press(/^(Verify the chain|校验)/) },
  { name: 'settings', path: '/settings', as: 'bea' },
  {
    name: 'palette',
    path: '/apps',
    as: 'ada',
    act: async (page) => {
      await page.keyboard.press('Control+k');
      await page.getByRole('option').first().waitFor();
    },
  },
  { name: 'policy', path: '/apps/demo/orders.create', as: 'bea' },
  { name: 'policy-shadow', path: '/apps/shop/shop.search', as: 'bea' },
  { name: 'policy-viewer', path: '/apps/demo/orders.create', as: 'vic' },
  {
    name: 'policy-edit',
    path: '/apps/demo/orders.create/edit',
    as: 'bea',
    act: (page) => fillFirst(page, /^(Burst \(at once\)|突发)$/, '400'),
  },
  {
    name: 'policy-edit-wrong',
    path: '/apps/demo/orders.create/edit',
    as: 'bea',
    act: (page) => fillFirst(page, /^(Burst \(at once\)|突发)$/, '0'),
  },
  { name: 'policy-edit-hostile', path: '/apps/shop/shop.search/edit', as: 'bea' },
  { name: 'policy-new', path: '/apps/demo/new', as: 'bea' },
  { name: 'policy-versions', path: '/apps/shop/shop.search/versions', as: 'bea' },
  { name: 'policy-deleted', path: '/apps/shop/deleted', as: 'bea' },
  { name: 'policy-activate', path: '/apps/shop/shop.search', as: 'bea', act: press(/^(Activate|启用)$/) },
  { name: 'keys', path: '/keys', as: 'bea' },
  { name: 'keys-found', path: '/keys?app=demo&policy=orders.create&key=203.0.113.7', as: 'bea' },
  { name: 'keys-viewer', path: '/keys?app=demo&policy=login&key=alice', as: 'vic' },
  { name: 'whatif', path: '/whatif', as: 'vic' },
  { name: 'whatif-compared', path: '/whatif?app=demo&policy=login', as: 'bea', act: compareLog },
  { name: 'import', path: '/import', as: 'vic' },
  { name: 'import-previewed', path: '/import?app=demo', as: 'bea', act: previewImport },
  { name: 'missing', path: '/nowhere', as: 'vic' },
  { name: 'app-unknown', path: '/apps/unknown', as: 'vic' },
];

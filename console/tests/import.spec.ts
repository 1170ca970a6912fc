import { enter, expect, test, type Api, type Server } from './harness.ts';
import { EXAMPLES } from './pages.ts';
import { startWorld } from './world.ts';

let world: Server & { ada: Api };

test.beforeAll(async () => {
  world = await startWorld();
});
test.afterAll(() => world.stop());

const NAMES = { nginx: 'api-api', sentinel: 'get-pay', envoy: /shop/, rate_limiter_info: 'pay.card' };

for (const [source, text] of Object.entries(EXAMPLES)) {
  test(`${source}: an example becomes a policy in shadow`, async ({ context, page }) => {
    await enter(context, world, 'bea');
    await page.goto(`${world.url}/import?app=demo`);
    await page.getByLabel('From').selectOption(source);
    await page.getByRole('textbox', { name: 'Configuration' }).fill(text);
    const policies = page.getByRole('region', { name: '1 policy' });
    await expect(policies.getByRole('checkbox', { name: NAMES[source as keyof typeof NAMES] })).toBeChecked();
    await page.getByLabel('Why (optional)').fill('from the old limiter');
    await page.getByRole('button', { name: 'Create 1 policy in shadow' }).click();
    await policies.getByRole('link', { name: 'created in shadow' }).click();
    await expect(page.getByRole('heading', { level: 1 })).toHaveText(NAMES[source as keyof typeof NAMES]);
    const { items } = await world.ada.ask('GET', '/apps/demo/audit?action=policy.create&limit=1');
    expect(items[0].reason).toBe('from the old limiter');
    expect(items[0].after).toContain('shadow');
  });
}

test('notes lead to their lines, errors too, and a policy that is there already is named', async ({
  context,
  page,
}) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/import?app=demo`);
  const area = page.getByRole('textbox', { name: 'Configuration' });
  await area.fill('a;\nlimit_req_zone $arg_x zone=x:1m rate=1r/s;\n');
  await expect(page.getByRole('alert')).toContainText('Line 2');
  await page.getByRole('checkbox', { name: 'Import also if more passes than before' }).check();
  await expect(page.getByRole('heading', { name: 'No limit that can be imported.' })).toBeVisible();
  await expect(page.getByRole('heading', { name: 'More passes than before' })).toBeVisible();
  await page.getByRole('button', { name: 'Line 2' }).click();
  const selected = await area.evaluate((field: HTMLTextAreaElement) =>
    field.value.slice(field.selectionStart, field.selectionEnd),
  );
  expect(selected).toMatch(/^limit_req_zone \$arg_x/);
  await page.getByRole('checkbox', { name: 'Import also if more passes than before' }).uncheck();
  await area.fill('http {\n');
  await expect(page.getByRole('alert')).toContainText('Line 1');
  await expect(page.getByRole('alert')).toContainText('has no }');

  await page.getByLabel('From').selectOption('rate_limiter_info');
  await area.fill('name,apps,max_permits,rate\nlogin,demo,20,5\nbrand.new,demo,1,1\n');
  await page.getByRole('button', { name: 'Create 2 policies in shadow' }).click();
  await expect(page.getByRole('alert')).toContainText('already exists');
  await expect(page.getByRole('link', { name: 'created in shadow' })).toHaveCount(1);
  await expect(page.getByRole('button', { name: 'Create 1 policy in shadow' })).toBeVisible();
});

test('what is created is what the text says, also right after an edit', async ({ context, page }) => {
  await enter(context, world, 'bea');
  await page.goto(`${world.url}/import?app=demo&from=rate_limiter_info`);
  const text = (name: string) => `name,apps,max_permits,rate\n${name},demo,20,5\n`;
  await page.getByRole('textbox', { name: 'Configuration' }).fill(text('old.text'));
  const button = page.getByRole('button', { name: 'Create 1 policy in shadow' });
  await expect(button).toBeVisible();
  // The press comes before the page looks at the new text.
  await button.evaluate((element: HTMLElement, next) => {
    const area = document.querySelector('textarea')!;
    area.value = next;
    area.dispatchEvent(new InputEvent('input', { bubbles: true }));
    element.click();
  }, text('new.text'));
  await expect(page.getByRole('checkbox', { name: 'new.text' })).toBeChecked();
  await button.click();
  await expect(page.getByRole('link', { name: 'created in shadow' })).toHaveCount(1);
  expect((await world.ada.send('GET', '/apps/demo/policies/new.text')).status).toBe(200);
  expect((await world.ada.send('GET', '/apps/demo/policies/old.text')).status).toBe(404);
});

test('a viewer sees the preview and creates nothing', async ({ context, page }) => {
  await enter(context, world, 'vic');
  await page.goto(`${world.url}/import?app=demo&from=sentinel`);
  await page.getByRole('textbox', { name: 'Configuration' }).fill('[{ "resource": "/x", "count": 1 }]');
  await expect(page.getByRole('button', { name: /^Create 1 policy/ })).toHaveAttribute('aria-disabled', 'true');
  const forced = await page.evaluate(async () => {
    const body = JSON.stringify({ document: { name: 'x', rules: [{ token_bucket: { rate: '1/s' } }] } });
    return (
      await fetch('/v1/admin/apps/demo/policies', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      })
    ).status;
  });
  expect(forced).toBe(403);
});

"""Tests that `names.py` finds a false name of each kind, and leaves names alone that are true or of other products."""

import unittest

import names

KNOWN = names.Known(
    commands={"": {"--help"}, "check": {"--cost"}, "policies": set(), "policies diff": {"--app"}},
    settings={"store", "store.nodes", "catalog", "catalog.oidc", "catalog.oidc.issuer", "oidc.issuer"},
    values={"redis", "redis.secretName"},
    variables={"SLUICEGATE_TOKEN"},
    metrics={"sluicegate_decisions_total": {"policy", "mode"}, "sluicegate_held_requests": set()},
    alerts={"SluicegateErrors"},
    files={"docs/runbook.md", "docs/redis.md", "deploy/compose.yaml", "sdk/go/examples/main.go"},
    endpoints=["/v1/check", "/v1/auth/{policy}", "/readyz"],
    program=b"... x-sluicegate-mode ... ratelimit-policy ... /v1/top ... sluicegate-program ...",
    sources='os.environ["SLUICEGATE_LONG"] ... name = "sluicegate-conformance"',
    deploy="labels: { app.kubernetes.io/name: sluicegate }",
)


def found(text, file="docs/page.md"):
    return list(names.wrong(names.uses(file, text), KNOWN))


class AFalseNameIsFound(unittest.TestCase):
    def check(self, text, message, file="docs/page.md", line=1):
        self.assertIn(f"{file}:{line}: {message}", found(text, file))

    def test_a_command(self):
        self.check("`sluicegate chek login`", "`sluicegate` has no command `chek`")

    def test_a_command_below_another(self):
        self.check("```sh\nsluicegate policies dif\n```\n", "`sluicegate policies` has no command `dif`", line=2)

    def test_a_flag_of_another_command(self):
        self.check("```console\n$ sluicegate check login --app shop\n```\n", "`sluicegate check` has no flag `--app`", line=2)

    def test_a_flag_on_the_next_line(self):
        self.check("```sh\nsluicegate check login \\\n  --price 2\n```\n", "`sluicegate check` has no flag `--price`", line=2)

    def test_a_flag_alone(self):
        self.check("text\n\nand `--costs N`", "no command has the flag `--costs`", line=3)

    def test_a_setting(self):
        self.check("`store.node = 3`", "there is no setting `store.node`")

    def test_a_setting_without_its_section(self):
        self.check("`oidc.isuer`", "there is no setting `oidc.isuer`")

    def test_a_setting_as_a_variable(self):
        self.check("`SLUICEGATE__STORE__NODE`", "there is no setting `store.node` for `SLUICEGATE__STORE__NODE`")

    def test_a_value_of_the_chart(self):
        self.check("`redis.secret`", "there is no setting `redis.secret`", "docs/deploy.md")

    def test_a_variable(self):
        self.check("`SLUICEGATE_TOKENS`", "nothing reads the variable `SLUICEGATE_TOKENS`")

    def test_a_metric(self):
        self.check("`sluicegate_decision_total`", "no server has the metric `sluicegate_decision_total`")

    def test_a_metric_of_an_alert(self):
        self.check("a:\n  expr: rate(sluicegate_denials_total[5m])\n", "no server has the metric `sluicegate_denials_total`", "deploy/a.yml", 2)

    def test_a_label_of_a_metric(self):
        message = "the metric `sluicegate_decisions_total` has no label `node`"
        self.check('`sluicegate_decisions_total{mode="local",node=~"a|b"}`', message)

    def test_an_alert(self):
        self.check("`SluicegateError`", "deploy/prometheus/alerts.yml has no alert `SluicegateError`")

    def test_a_path(self):
        self.check("`deploy/compose.yml`", "the repository has no `deploy/compose.yml`")

    def test_a_page(self):
        self.check("`runbooks.md`", "the repository has no page `runbooks.md`")

    def test_an_anchor(self):
        self.check("# See docs/runbook.md#nothing\n", "docs/runbook.md has no heading #nothing", "deploy/a.yml")

    def test_an_endpoint(self):
        self.check("`POST /v1/chek`", "no address serves `/v1/chek`")

    def test_a_probe(self):
        self.check("`/readz`", "no address serves `/readz`")

    def test_a_header(self):
        self.check("`X-Sluicegate-Modus: store`", "the program has no header `X-Sluicegate-Modus`")

    def test_a_label_of_kubernetes(self):
        self.check('`sluicegate-client: "true"`', "neither deploy/ nor the program has `sluicegate-client`")

    def test_a_label_of_kubernetes_that_all_charts_have(self):
        self.check("`app.kubernetes.io/nam`", "neither deploy/ nor the program has `app.kubernetes.io/nam`")


class NoFalseAlarm(unittest.TestCase):
    def test_true_names(self):
        for text in (
            "`sluicegate policies diff --app shop`",
            "```sh\nsluicegate check login --cost 2 | grep --count x\n```\n",
            "`store.nodes = 3` `oidc.issuer` `SLUICEGATE__STORE__NODES` `SLUICEGATE_TOKEN` `SLUICEGATE_LONG`",
            '`sluicegate_decisions_total{mode="local"}` `sluicegate_held_requests` `sluicegate_decisions_*`',
            "`SluicegateErrors` `docs/redis.md` `deploy/*.yaml` `runbook.md`",
            "`/v1/auth/POLICY` `/v1/top?policy=P` `/readyz` `X-Sluicegate-Mode` `RateLimit-Policy`",
            "`sluicegate-program` `app.kubernetes.io/name=sluicegate` `sluicegate_conformance`",
        ):
            self.assertEqual(found(text), [])

    def test_names_of_other_products(self):
        for text in (
            "`kubectl apply --kustomize deploy` `helm install sluicegate . --set a=b` `io.lettuce.core` `redis.call` `store.rs`",
            "```nginx\nupstream sluicegate_servers { server 127.0.0.1:8080; }\n```\n",
            "The program sluicegate chek is in prose, and not in code: /v1/chek",
        ):
            self.assertEqual(found(text), [])

    def test_a_path_beside_the_page(self):
        self.assertEqual(found("`examples/main.go`", "sdk/go/README.md"), [])


if __name__ == "__main__":
    unittest.main()

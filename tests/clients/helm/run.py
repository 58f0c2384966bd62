#!/usr/bin/env python3
"""Helm's own engine (PyPI package helm-sdkpy, Helm 4) against a running server.

Usage: run.py KUBECONFIG [NAME...]   runs the tests whose names contain one of NAME, else all

Installs, upgrades, rolls back and uninstalls the charts beside this file. No controllers are needed: nothing waits for
Pods. What the cluster holds is looked at through the API itself, not through Helm.
"""
import asyncio
import base64
import json
import pathlib
import ssl
import subprocess
import sys
import tempfile
import traceback
import urllib.error
import urllib.request

import helm_sdkpy as helm

CHARTS = pathlib.Path(__file__).resolve().parent / "charts"
# Whatever waits in Helm waits for what is there at once; this ends it when it is not.
TIMEOUT_SECONDS = 60


class Cluster:
    """The API with the client certificate of a kubeconfig that `flatkube server` wrote."""

    def __init__(self, kubeconfig):
        fields = {}
        for line in pathlib.Path(kubeconfig).read_text().splitlines():
            name, colon, value = line.strip().lstrip("- ").partition(":")
            if colon:
                fields.setdefault(name, value.strip().strip('"'))
        self.server = fields["server"]
        with tempfile.TemporaryDirectory() as folder:
            files = {}
            for name in ("certificate-authority-data", "client-certificate-data", "client-key-data"):
                files[name] = pathlib.Path(folder) / name
                files[name].write_bytes(base64.b64decode(fields[name]))
            self.context = ssl.create_default_context(cafile=str(files["certificate-authority-data"]))
            self.context.load_cert_chain(files["client-certificate-data"], files["client-key-data"])

    def ask(self, method, path, body=None, content_type="application/json"):
        """The answer's status and JSON."""
        request = urllib.request.Request(self.server + path, method=method, headers={"Content-Type": content_type},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, context=self.context) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def get(self, path):
        """The object there, or None."""
        status, body = self.ask("GET", path)
        assert status in (200, 404), body
        return body if status == 200 else None

    def names(self, path):
        return sorted(item["metadata"]["name"] for item in self.get(path)["items"])


class Release:
    """One release in a namespace of its own."""

    def __init__(self, cluster, kubeconfig, name):
        self.cluster, self.kubeconfig, self.name = cluster, kubeconfig, name
        self.namespace = "helm-" + name
        cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.config = helm.Configuration(namespace=self.namespace, kubeconfig=kubeconfig)

    def core(self, kind, name=""):
        return self.cluster.get("/api/v1/namespaces/%s/%s/%s" % (self.namespace, kind, name)) if name else \
            "/api/v1/namespaces/%s/%s" % (self.namespace, kind)

    def deployment(self):
        return self.cluster.get("/apis/apps/v1/namespaces/%s/deployments/%s" % (self.namespace, self.name))

    async def install(self, chart, values=None, **options):
        options = {"wait": False, "timeout": TIMEOUT_SECONDS, **options}
        return await helm.Install(self.config).run(self.name, str(CHARTS / chart), values, **options)

    async def upgrade(self, chart, values=None, **options):
        options = {"wait": False, "timeout": TIMEOUT_SECONDS, **options}
        return await helm.Upgrade(self.config).run(self.name, str(CHARTS / chart), values, **options)

    async def rollback(self, revision):
        command = [sys.executable, str(CHARTS.parent / "rollback.py"), self.kubeconfig, self.namespace, self.name,
                   str(revision)]
        process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()

    async def uninstall(self, wait=True):
        return await helm.Uninstall(self.config).run(self.name, wait=wait, timeout=TIMEOUT_SECONDS)

    async def statuses(self):
        history = await helm.History(self.config).run(self.name)
        return [one["info"]["status"] if "info" in one else one["status"]
                for one in sorted(history, key=lambda one: one["version"])]

    def managers(self, path):
        return {(one["manager"], one["operation"]) for one in self.cluster.get(path)["metadata"]["managedFields"]}


def equal(got, expected):
    assert got == expected, "%r instead of %r" % (got, expected)


async def life_of_a_release(release, **how):
    """install, upgrade, an upgrade that takes objects away, rollback, uninstall."""
    await release.install("plain", {"budget": True}, **how)
    equal(release.core("configmaps", release.name + "-settings")["data"]["colour"], "red")
    equal(release.deployment()["spec"]["replicas"], 2)
    ports = release.core("services", release.name)["spec"]["ports"]
    budgets = "/apis/policy/v1/namespaces/%s/poddisruptionbudgets" % release.namespace
    equal(release.cluster.names(budgets), [release.name])
    before = release.core("services", release.name)["metadata"]

    await release.upgrade("plain", {"colour": "blue", "replicas": 5, "image": "registry.example.com/plain:2"})
    equal(release.core("configmaps", release.name + "-settings")["data"],
          {"colour": "blue", "revision": "2", "settings.ini": "[general]\nreplicas = 5\n"})
    equal(release.deployment()["spec"]["replicas"], 5)
    equal(release.deployment()["metadata"]["generation"], 2)
    equal(release.cluster.names(budgets), [])
    # What no template changed was not written: same revision.
    equal(release.core("services", release.name)["metadata"]["resourceVersion"], before["resourceVersion"])

    await release.rollback(1)
    equal(release.core("configmaps", release.name + "-settings")["data"]["colour"], "red")
    equal(release.deployment()["spec"]["template"]["spec"]["containers"][0]["image"], "registry.example.com/plain:1")
    equal(release.core("services", release.name)["spec"]["ports"], ports)
    equal(release.cluster.names(budgets), [release.name])
    equal(await release.statuses(), ["superseded", "superseded", "deployed"])
    equal([one["name"] for one in await helm.List(release.config).run()], [release.name])
    # Releases are kept in Secrets.
    equal(release.cluster.names(release.core("secrets")),
          ["sh.helm.release.v1.%s.v%d" % (release.name, version) for version in (1, 2, 3)])

    await release.uninstall()
    assert release.deployment() is None
    assert release.core("services", release.name) is None
    equal(release.cluster.names(release.core("secrets")), [])


async def plain_by_the_client(release):
    await life_of_a_release(release, server_side_apply=False)


async def plain_by_server_side_apply(release):
    await release.install("plain", server_side_apply=True)
    path = "/apis/apps/v1/namespaces/%s/deployments/%s" % (release.namespace, release.name)
    assert any(operation == "Apply" for _, operation in release.managers(path)), release.managers(path)
    await release.uninstall()
    await life_of_a_release(release, server_side_apply=True)


async def server_side_apply_meets_another_owner(release):
    await release.install("plain", server_side_apply=True)
    path = "/apis/apps/v1/namespaces/%s/deployments/%s" % (release.namespace, release.name)
    status, body = release.cluster.ask("PATCH", path + "?fieldManager=scaler&force=true", content_type="application/apply-patch+yaml",
                                       body={"apiVersion": "apps/v1", "kind": "Deployment",
                                             "metadata": {"name": release.name}, "spec": {"replicas": 9}})
    equal(status, 200)
    try:
        await release.upgrade("plain", {"replicas": 4}, server_side_apply=True)
    except helm.UpgradeError as error:
        assert "conflict" in str(error).lower() and "scaler" in str(error), error
    else:
        raise AssertionError("no conflict")
    equal(release.deployment()["spec"]["replicas"], 9)
    await release.upgrade("plain", {"replicas": 4}, server_side_apply=True, force_conflicts=True)
    equal(release.deployment()["spec"]["replicas"], 4)
    await release.uninstall()


async def from_the_client_to_the_server_and_back(release):
    await release.install("plain", {"colour": "red"}, server_side_apply=False)
    await release.upgrade("plain", {"colour": "green"}, server_side_apply=True, force_conflicts=True)
    equal(release.core("configmaps", release.name + "-settings")["data"]["colour"], "green")
    await release.upgrade("plain", {"colour": "blue"}, server_side_apply=False)
    equal(release.core("configmaps", release.name + "-settings")["data"]["colour"], "blue")
    await release.uninstall()


async def waiting_ends_when_everything_is_there(release):
    # No workload: what remains is ready as soon as it exists.
    await release.install("plain", {"workload": False}, wait=True)
    await release.upgrade("plain", {"workload": False, "colour": "blue"}, wait=True)
    await release.uninstall(wait=True)


async def openapi_validation_and_the_charts_own_schema(release):
    await release.install("plain", disable_openapi_validation=False)
    try:
        await release.upgrade("plain", {"replicas": "many"})
    except helm.HelmError as error:
        assert "replicas" in str(error), error
    else:
        raise AssertionError("a value that the chart's schema forbids was taken")
    await release.uninstall()


async def a_failed_upgrade_is_rolled_back(release):
    # What is rolled back to is waited for, so there is no workload in it.
    await release.install("plain", {"workload": False})
    try:
        await release.upgrade("plain", {"workload": False, "colour": "blue", "port": 99999}, rollback_on_failure=True)
    except helm.UpgradeError as error:
        assert "99999" in str(error), error
    else:
        raise AssertionError("a port beyond 65535 was taken")
    equal(await release.statuses(), ["superseded", "failed", "deployed"])
    equal(release.core("configmaps", release.name + "-settings")["data"]["colour"], "red")
    await release.uninstall()


async def hooks_run_around_everything(release):
    def hook(name):
        found = release.core("configmaps", "%s-%s" % (release.name, name))
        return found and found["data"]["revision"]
    await release.install("hooks")
    equal((hook("pre-install"), hook("post-install"), hook("pre-upgrade")), ("1", "1", None))
    assert release.core("configmaps", release.name + "-passing") is None, "deleted once it succeeded"
    await release.upgrade("hooks")
    equal((hook("pre-upgrade"), hook("post-upgrade"), hook("pre-rollback")), ("2", "2", None))
    await release.upgrade("hooks")
    equal((hook("pre-install"), hook("pre-upgrade")), ("1", "3"))
    await release.rollback(1)
    equal((hook("pre-rollback"), hook("post-rollback")), ("1", "1"))
    equal(release.core("configmaps", release.name)["data"]["revision"], "1")
    try:
        await release.upgrade("hooks", {"broken": True})
    except helm.UpgradeError as error:
        assert "99999" in str(error), error
    else:
        raise AssertionError("a Service without a right port was taken")
    equal((await release.statuses())[-1], "failed")
    equal(release.core("configmaps", release.name)["data"]["revision"], "1")
    await release.uninstall()
    assert release.core("configmaps", release.name) is None
    assert hook("pre-delete") and hook("post-delete"), "hooks of a deletion stay"


async def definitions_come_before_their_objects(release):
    path = "/apis/helm.example.com/v1/namespaces/%s/gadgets/%s" % (release.namespace, release.name)
    await release.install("definitions", server_side_apply=True)
    gadget = release.cluster.get(path)
    equal(gadget["spec"], {"size": 3, "mode": "plain", "parts": [{"name": "a", "weight": 3}]})
    await release.upgrade("definitions", {"size": 5})
    equal(release.cluster.get(path)["spec"]["parts"], [{"name": "a", "weight": 5}])
    await release.upgrade("definitions", {"size": 6}, server_side_apply=False)
    equal(release.cluster.get(path)["spec"]["size"], 6)
    try:
        await release.upgrade("definitions", {"size": 0})
    except helm.UpgradeError as error:
        assert "spec.size" in str(error), error
    else:
        raise AssertionError("a size below the minimum was taken")
    await release.rollback(1)
    equal(release.cluster.get(path)["spec"]["size"], 3)
    await release.uninstall()
    assert release.cluster.get(path) is None
    # Helm leaves definitions alone.
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.helm.example.com"
    assert release.cluster.get(crd) is not None
    release.cluster.ask("DELETE", crd)


async def lookup_sees_what_is_there(release):
    await release.install("lookup")
    secret = release.core("secrets", release.name + "-keys")["data"]
    server = release.core("configmaps", release.name + "-server")["data"]
    equal({name: server[name] for name in ("autoscaling", "nothing", "absent")},
          {"autoscaling": "true", "nothing": "false", "absent": "true"})
    assert server["version"].startswith("v1.36"), server
    assert int(server["namespaces"]) >= 4, server
    await release.upgrade("lookup", {"generation": 2})
    again = release.core("secrets", release.name + "-keys")["data"]
    equal(again["password"], secret["password"])
    assert again["generation"] != secret["generation"]
    await release.uninstall()


async def charts_in_charts(release):
    def parts():
        return sorted(item["metadata"]["name"] for item in release.cluster.get(
            release.core("configmaps") + "?labelSelector=part-of%3D" + release.name)["items"])
    await release.install("umbrella")
    equal(parts(), [release.name + "-first", release.name + "-top"])
    await release.upgrade("umbrella", {"second": {"enabled": True}, "global": {"tier": "back"}})
    equal(parts(), [release.name + end for end in ("-first", "-second", "-top")])
    equal(release.core("configmaps", release.name + "-second")["data"], {"size": "2", "tier": "back"})
    await release.upgrade("umbrella", {"second": {"enabled": False}})
    equal(parts(), [release.name + "-first", release.name + "-top"])
    await release.uninstall()
    equal(parts(), [])


async def ten_releases_at_a_time(release):
    async def one(number):
        own = Release(release.cluster, release.kubeconfig, "%s-%d" % (release.name, number))
        await own.install("plain", {"replicas": number})
        equal(own.deployment()["spec"]["replicas"], number)
        await own.uninstall()
    await asyncio.gather(*(one(number) for number in range(10)))


TESTS = [plain_by_the_client, plain_by_server_side_apply, server_side_apply_meets_another_owner,
         from_the_client_to_the_server_and_back, waiting_ends_when_everything_is_there,
         openapi_validation_and_the_charts_own_schema, a_failed_upgrade_is_rolled_back, hooks_run_around_everything,
         definitions_come_before_their_objects, lookup_sees_what_is_there, charts_in_charts, ten_releases_at_a_time]


def main():
    kubeconfig, wanted = sys.argv[1], sys.argv[2:]
    cluster = Cluster(kubeconfig)
    failed = 0
    chosen = [test for test in TESTS if not wanted or any(word in test.__name__ for word in wanted)]
    for number, test in enumerate(chosen):
        release = Release(cluster, kubeconfig, "r%d" % number)
        try:
            asyncio.run(asyncio.wait_for(test(release), 2 * TIMEOUT_SECONDS))
            print("helm: %s ... ok" % test.__name__.replace("_", " "), flush=True)
        except Exception:
            failed += 1
            print("helm: %s ... FAILED\n%s" % (test.__name__, traceback.format_exc()), flush=True)
    print("helm: %d passed, %d failed" % (len(chosen) - failed, failed))
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())

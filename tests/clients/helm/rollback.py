#!/usr/bin/env python3
"""Rolls a release back: `rollback.py KUBECONFIG NAMESPACE RELEASE REVISION`.

With the PyPI package helm-python-sdk, another build of the same engine: the rollback of helm-sdkpy (0.1.28 to 0.1.32) sets
no way of waiting, and the engine refuses that before it asks the server anything. A process of its own, because two
runtimes of Go do not share one well.
"""
import sys

import helm_python

kubeconfig, namespace, release, revision = sys.argv[1:]
with helm_python.Config(kubeconfig_path=kubeconfig, namespace=namespace) as config:
    config.rollback(release, version=int(revision), wait="hookOnly", timeout=60)

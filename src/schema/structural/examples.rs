//! Schemas as big ones of the ecosystem are, made by a program: certificates, monitoring rules with whole Pod templates,
//! applications with many sources, routes with many matches, compositions that keep what is unknown.

use serde_json::{Value as Json, json};

use super::Structural;
use crate::tree::Value;

fn text() -> Json {
    json!({"type": "string"})
}

fn object(fields: &[(&str, Json)]) -> Json {
    let fields: serde_json::Map<String, Json> = fields
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    json!({"type": "object", "properties": fields})
}

fn list(items: &Json) -> Json {
    json!({"type": "array", "items": items})
}

fn secret_key() -> Json {
    let mut schema = object(&[
        ("name", json!({"type": "string", "default": ""})),
        ("key", text()),
        ("optional", json!({"type": "boolean"})),
    ]);
    schema["required"] = json!(["key"]);
    schema["x-kubernetes-map-type"] = json!("atomic");
    schema
}

fn label_selector() -> Json {
    let expression = object(&[("key", text()), ("operator", text()), ("values", list(&text()))]);
    object(&[
        ("matchExpressions", list(&expression)),
        ("matchLabels", json!({"type": "object", "additionalProperties": text()})),
    ])
}

fn affinity() -> Json {
    let term = object(&[
        ("labelSelector", label_selector()),
        ("namespaceSelector", label_selector()),
        ("namespaces", list(&text())),
        ("topologyKey", text()),
    ]);
    let weighted = object(&[
        ("podAffinityTerm", term.clone()),
        ("weight", json!({"type": "integer", "format": "int32"})),
    ]);
    let both = object(&[
        ("preferredDuringSchedulingIgnoredDuringExecution", list(&weighted)),
        ("requiredDuringSchedulingIgnoredDuringExecution", list(&term)),
    ]);
    object(&[("podAffinity", both.clone()), ("podAntiAffinity", both)])
}

fn container() -> Json {
    let quantity = json!({
        "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$",
    });
    let amounts = json!({"type": "object", "additionalProperties": quantity});
    let from = object(&[
        ("secretKeyRef", secret_key()),
        ("configMapKeyRef", secret_key()),
        ("fieldRef", object(&[("fieldPath", text())])),
    ]);
    let port = object(&[
        (
            "containerPort",
            json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}),
        ),
        ("name", text()),
        ("protocol", json!({"type": "string", "default": "TCP"})),
    ]);
    let probe = object(&[
        (
            "httpGet",
            object(&[
                ("path", text()),
                ("port", json!({"x-kubernetes-int-or-string": true})),
                ("scheme", text()),
            ]),
        ),
        ("exec", object(&[("command", list(&text()))])),
        ("periodSeconds", json!({"type": "integer"})),
        ("timeoutSeconds", json!({"type": "integer"})),
    ]);
    let env = object(&[("name", text()), ("value", text()), ("valueFrom", from)]);
    let mut ports = list(&port);
    ports["x-kubernetes-list-type"] = json!("map");
    ports["x-kubernetes-list-map-keys"] = json!(["containerPort", "protocol"]);
    ports["items"]["required"] = json!(["containerPort"]);
    object(&[
        ("name", text()),
        ("image", text()),
        ("command", list(&text())),
        ("args", list(&text())),
        ("env", list(&env)),
        ("ports", ports),
        ("livenessProbe", probe.clone()),
        ("readinessProbe", probe.clone()),
        ("startupProbe", probe),
        (
            "resources",
            object(&[("limits", amounts.clone()), ("requests", amounts)]),
        ),
    ])
}

fn pod_template() -> Json {
    let volume = object(&[
        ("name", text()),
        (
            "secret",
            object(&[
                ("secretName", text()),
                ("items", list(&object(&[("key", text()), ("path", text())]))),
            ]),
        ),
        (
            "configMap",
            object(&[
                ("name", text()),
                ("items", list(&object(&[("key", text()), ("path", text())]))),
            ]),
        ),
        (
            "emptyDir",
            object(&[
                ("medium", text()),
                ("sizeLimit", json!({"x-kubernetes-int-or-string": true})),
            ]),
        ),
    ]);
    object(&[
        ("containers", list(&container())),
        ("initContainers", list(&container())),
        ("volumes", list(&volume)),
        ("affinity", affinity()),
        (
            "nodeSelector",
            json!({"type": "object", "additionalProperties": text()}),
        ),
        (
            "tolerations",
            list(&object(&[
                ("key", text()),
                ("operator", text()),
                ("value", text()),
                ("effect", text()),
            ])),
        ),
    ])
}

/// In the style of a certificate manager: names, durations, key options with defaults and choices. `benches/` measure by it.
fn certificate() -> Json {
    serde_json::from_str(include_str!("testdata/certificate.json")).expect("JSON")
}

/// In the style of a monitoring operator: whole Pod templates, many selectors, many endpoints.
fn monitoring() -> Json {
    let endpoint = object(&[
        ("port", text()),
        ("path", text()),
        (
            "interval",
            json!({"type": "string", "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"}),
        ),
        (
            "basicAuth",
            object(&[("username", secret_key()), ("password", secret_key())]),
        ),
        (
            "relabelings",
            list(&object(&[
                ("action", json!({"type": "string", "default": "replace"})),
                ("regex", text()),
                ("sourceLabels", list(&text())),
            ])),
        ),
    ]);
    let remotes: Vec<(String, Json)> = (0..40).map(|i| (format!("remote{i}"), endpoint.clone())).collect();
    let remotes: Vec<(&str, Json)> = remotes
        .iter()
        .map(|(name, schema)| (name.as_str(), schema.clone()))
        .collect();
    object(&[(
        "spec",
        object(&[
            ("template", pod_template()),
            ("alertmanager", pod_template()),
            ("ruler", pod_template()),
            ("selector", label_selector()),
            ("namespaceSelector", label_selector()),
            ("endpoints", list(&endpoint)),
            ("remotes", object(&remotes)),
        ]),
    )])
}

/// In the style of a gateway: routes whose matches are one of several kinds.
fn route() -> Json {
    let value = object(&[
        (
            "type",
            json!({"type": "string", "enum": ["Exact", "RegularExpression"], "default": "Exact"}),
        ),
        ("name", text()),
        ("value", text()),
    ]);
    let filters: Vec<Json> = ["requestHeaderModifier", "requestRedirect", "urlRewrite"]
        .iter()
        .map(|name| json!({"required": [name]}))
        .collect();
    let mut filter = object(&[
        ("type", text()),
        (
            "requestHeaderModifier",
            object(&[("set", list(&value)), ("add", list(&value)), ("remove", list(&text()))]),
        ),
        (
            "requestRedirect",
            object(&[
                ("hostname", text()),
                ("statusCode", json!({"type": "integer", "enum": [301, 302]})),
            ]),
        ),
        ("urlRewrite", object(&[("hostname", text())])),
    ]);
    filter["oneOf"] = json!(filters);
    let matches = object(&[
        ("path", value.clone()),
        ("headers", list(&value)),
        ("queryParams", list(&value)),
        ("method", text()),
    ]);
    let rule = object(&[
        ("matches", list(&matches)),
        ("filters", list(&filter)),
        (
            "backendRefs",
            list(&object(&[
                ("name", text()),
                ("port", json!({"type": "integer"})),
                ("weight", json!({"type": "integer", "default": 1})),
            ])),
        ),
    ]);
    object(&[("spec", object(&[("hostnames", list(&text())), ("rules", list(&rule))]))])
}

/// In the style of a composition engine: what is inside is anybody's.
fn composition() -> Json {
    let base =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    let patch = object(&[
        ("type", text()),
        ("fromFieldPath", text()),
        ("toFieldPath", text()),
        (
            "transforms",
            list(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
        ),
    ]);
    object(&[(
        "spec",
        object(&[(
            "resources",
            list(&object(&[("name", text()), ("base", base), ("patches", list(&patch))])),
        )]),
    )])
}

fn all() -> Vec<(&'static str, Json)> {
    vec![
        ("certificate", certificate()),
        ("monitoring", monitoring()),
        ("route", route()),
        ("composition", composition()),
    ]
}

fn schemas(schema: &Json) -> usize {
    let below = |name: &str| schema.get(name).map_or(0, schemas);
    let fields = schema
        .get("properties")
        .and_then(Json::as_object)
        .into_iter()
        .flat_map(|map| map.values());
    let branches = ["oneOf", "anyOf"]
        .into_iter()
        .filter_map(|name| schema.get(name)?.as_array())
        .flatten();
    1 + fields.chain(branches).map(schemas).sum::<usize>()
        + below("items")
        + if schema.get("additionalProperties").is_some_and(Json::is_object) {
            below("additionalProperties")
        } else {
            0
        }
}

#[test]
fn big_schemas_stay_small() {
    for (name, schema) in all() {
        let count = schemas(&schema);
        let compiled = Structural::compile(&Value::from(schema)).unwrap();
        println!(
            "{name}: {count} schemas, {} distinct, {} bytes",
            compiled.node_count(),
            compiled.bytes()
        );
        assert!(
            compiled.bytes() < 40 * count + 2_000,
            "{name}: {} bytes for {count} schemas",
            compiled.bytes()
        );
    }
    // Without any two parts alike, a schema takes this much.
    let fields: Vec<(String, Json)> = (0..1_000)
        .map(|i| (format!("field{i}"), json!({"type": "integer", "maximum": i})))
        .collect();
    let fields: Vec<(&str, Json)> = fields
        .iter()
        .map(|(name, schema)| (name.as_str(), schema.clone()))
        .collect();
    let compiled = Structural::compile(&Value::from(object(&fields))).unwrap();
    println!("1,000 distinct: {} bytes", compiled.bytes());
    assert!(compiled.bytes() < 72_000, "{}", compiled.bytes());
}

#[test]
fn a_certificate_is_filled_pruned_and_judged() {
    let schema = Structural::compile(&Value::from(certificate())).unwrap();
    let mut object = Value::from(json!({
        "apiVersion": "certs.example.com/v1", "kind": "Certificate", "metadata": {"name": "c"},
        "spec": {
            "secretName": "c-tls", "dnsNames": ["a.example.com"], "issuerRef": {"name": "ca"}, "privateKey": {"size": 2048},
            "usages": ["server auth"], "ipAddresses": ["10.0.0.300"], "typo": true,
        },
    }));
    assert_eq!(schema.prune(&mut object).unwrap(), ["spec.typo"]);
    schema.fill(&mut object).unwrap();
    assert_eq!(object["spec"]["issuerRef"]["kind"], "Issuer");
    assert_eq!(object["spec"]["privateKey"]["algorithm"], "RSA");
    let errors: Vec<String> = schema.validate(None, &object).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "spec.ipAddresses[0]: Invalid value: \"10.0.0.300\": spec.ipAddresses[0] in body must be of type ipv4: \"10.0.0.300\"",
        ]
    );
}

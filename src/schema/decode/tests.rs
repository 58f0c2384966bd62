//! Requests and what is said of them, as kube-apiserver says it.

use super::*;
use crate::tree::json;

const CONFIG_MAP: Expected<'static> = Expected {
    group: "",
    version: "v1",
    kind: "ConfigMap",
};
const POD: Expected<'static> = Expected {
    group: "",
    version: "v1",
    kind: "Pod",
};
const SECRET: Expected<'static> = Expected {
    group: "",
    version: "v1",
    kind: "Secret",
};
const SERVICE: Expected<'static> = Expected {
    group: "",
    version: "v1",
    kind: "Service",
};
const DEPLOYMENT: Expected<'static> = Expected {
    group: "apps",
    version: "v1",
    kind: "Deployment",
};
const CRD: Expected<'static> = Expected {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
};

fn strict(body: &str, expected: &Expected<'_>) -> Result<Value, String> {
    decode(body.as_bytes(), Syntax::Json, expected, FieldValidation::Strict)
        .map(|decoded| decoded.value)
        .map_err(|rejected| rejected.message)
}

fn warn(body: &str, expected: &Expected<'_>) -> Decoded {
    decode(body.as_bytes(), Syntax::Json, expected, FieldValidation::Warn).unwrap()
}

#[test]
fn unknown_fields_are_named_by_path_in_the_order_of_the_document() {
    let body =
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","extra":"x"},"data":{"k":"v"},"bogus":1}"#;
    assert_eq!(
        strict(body, &CONFIG_MAP).unwrap_err(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
         unknown field \"metadata.extra\", unknown field \"bogus\""
    );
    let decoded = warn(body, &CONFIG_MAP);
    assert_eq!(
        decoded.warnings,
        ["unknown field \"metadata.extra\"", "unknown field \"bogus\""]
    );
    assert_eq!(
        decoded.value,
        json!({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"},"data":{"k":"v"}})
    );
    let ignored = decode(body.as_bytes(), Syntax::Json, &CONFIG_MAP, FieldValidation::Ignore).unwrap();
    assert_eq!((ignored.value, ignored.warnings.len()), (decoded.value, 0));
}

#[test]
fn unknown_fields_of_list_elements_carry_their_index() {
    let body = r#"{"spec":{"containers":[{"name":"a"},{"name":"c","imagee":"x"}],"restartPolicyy":"Always"}}"#;
    assert_eq!(
        warn(body, &POD).warnings,
        [
            "unknown field \"spec.containers[1].imagee\"",
            "unknown field \"spec.restartPolicyy\""
        ]
    );
}

#[test]
fn duplicate_fields_are_found_and_the_last_one_wins() {
    let body = r#"{"metadata":{"labels":{"a":"1","a":"2"}},"data":{"k":"1"},"data":{"k":"2"},"x":1,"x":2}"#;
    let decoded = warn(body, &CONFIG_MAP);
    assert_eq!(
        decoded.warnings,
        [
            "duplicate field \"metadata.labels.a\"",
            "duplicate field \"data\"",
            "unknown field \"x\""
        ]
    );
    assert_eq!(decoded.value["data"], json!({"k": "2"}));
    assert_eq!(decoded.value["metadata"]["labels"], json!({"a": "2"}));
}

#[test]
fn wrong_types_are_refused_with_the_struct_the_path_and_the_type() {
    for (expected, body, text) in [
        (
            &POD,
            r#"{"spec":{"containers":"none"}}"#,
            "string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            &DEPLOYMENT,
            r#"{"spec":{"replicas":"three"}}"#,
            "string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            &DEPLOYMENT,
            r#"{"spec":{"replicas":1.5}}"#,
            "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            &DEPLOYMENT,
            r#"{"spec":{"replicas":3000000000}}"#,
            "number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            &CONFIG_MAP,
            r#"{"data":{"a":1}}"#,
            "number into Go struct field ConfigMap.data of type string",
        ),
        (
            &CONFIG_MAP,
            r#"{"data":"x"}"#,
            "string into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            &SERVICE,
            r#"{"spec":{"ports":[{"port":"http"}]}}"#,
            "string into Go struct field ServicePort.spec.ports.port of type int32",
        ),
        (
            &CONFIG_MAP,
            r#"{"metadata":"x"}"#,
            "string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            &CONFIG_MAP,
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            &CONFIG_MAP,
            r#"{"metadata":{"finalizers":[true]}}"#,
            "bool into Go struct field ObjectMeta.metadata.finalizers of type string",
        ),
        (
            &POD,
            r#"{"spec":{"restartPolicy":5}}"#,
            "number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            &POD,
            r#"{"spec":{"containers":[{"securityContext":{"capabilities":{"add":[1]}}}]}}"#,
            "number into Go struct field Capabilities.spec.containers.securityContext.capabilities.add of type v1.Capability",
        ),
        (
            &POD,
            r#"{"spec":{"containers":[{"resources":{"limits":"x"}}]}}"#,
            "string into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
        ),
        (
            &CONFIG_MAP,
            r#"{"data":[1],"immutable":"x"}"#,
            "array into Go struct field ConfigMap.data of type map[string]string",
        ),
    ] {
        assert_eq!(
            strict(body, expected).unwrap_err(),
            format!(
                "{0} in version \"v1\" cannot be handled as a {0}: json: cannot unmarshal {text}",
                expected.kind
            ),
            "{body}"
        );
    }
}

#[test]
fn types_with_a_decoder_of_their_own_have_a_text_of_their_own() {
    for (expected, body, text) in [
        (
            &SECRET,
            r#"{"data":{"k":"not base64!"}}"#,
            "illegal base64 data at input byte 3",
        ),
        (
            &POD,
            r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"lots"}}}]}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        // a fatal text takes precedence over an earlier wrong type
        (
            &POD,
            r#"{"spec":{"hostPID":"x","containers":[{"resources":{"limits":{"cpu":{}}}}]}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            &POD,
            r#"{"metadata":{"creationTimestamp":"yesterday"}}"#,
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
        ),
        (
            &SERVICE,
            r#"{"spec":{"ports":[{"port":1,"targetPort":1.5}]}}"#,
            "json: cannot unmarshal number 1.5 into Go value of type int32",
        ),
    ] {
        assert_eq!(
            strict(body, expected).unwrap_err(),
            format!(
                "{0} in version \"v1\" cannot be handled as a {0}: {text}",
                expected.kind
            ),
            "{body}"
        );
    }
}

#[test]
fn nulls_leave_what_go_leaves() {
    let decoded = warn(
        r#"{"metadata":{"name":"a","labels":null,"annotations":{"x":null},"finalizers":[null]},"data":{"k":null}}"#,
        &CONFIG_MAP,
    );
    assert_eq!(
        decoded.value,
        json!({"kind":"ConfigMap","apiVersion":"v1","data":{"k":""},
               "metadata":{"name":"a","annotations":{"x":""},"finalizers":[""]}})
    );
    assert_eq!(
        warn(r#"{"spec":{"containers":[null]}}"#, &POD).value["spec"],
        json!({"containers": [{}]})
    );
    assert_eq!(
        warn("null", &CONFIG_MAP).value,
        json!({"kind": "ConfigMap", "apiVersion": "v1"})
    );
}

#[test]
fn kinds_that_do_not_fit_the_path_are_refused() {
    for (expected, body, text) in [
        (
            &CONFIG_MAP,
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#,
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            &CONFIG_MAP,
            r#"{"apiVersion":"v2","kind":"ConfigMap"}"#,
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"flatkube/schema\"",
        ),
        (
            &DEPLOYMENT,
            r#"{"apiVersion":"extensions/v1beta1","kind":"Deployment"}"#,
            "the API version in the data (extensions/v1beta1) does not match the expected API version (apps/v1)",
        ),
        (
            &DEPLOYMENT,
            r#"{"apiVersion":"v1","kind":"Deployment"}"#,
            "Deployment in version \"v1\" cannot be handled as a Deployment: no kind \"Deployment\" is registered for version \"v1\" in scheme \"flatkube/schema\"",
        ),
        (
            &CONFIG_MAP,
            r#"{"apiVersion": "a/b/c", "kind": "ConfigMap"}"#,
            "the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c ({\"apiVersion\": \"a/b/c\", \"kind\" ...)",
        ),
        (
            &CONFIG_MAP,
            r#"{"kind":5}"#,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({\"kind\":5})",
        ),
    ] {
        assert_eq!(strict(body, expected).unwrap_err(), text, "{body}");
    }
    assert_eq!(
        strict(r#"{"metadata":{"name":"x2"}}"#, &CONFIG_MAP).unwrap()["apiVersion"],
        "v1"
    );
}

#[test]
fn what_is_not_json_is_refused_with_what_was_sent() {
    const HEAD: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    for (body, text) in [
        (
            "{bad",
            "invalid character 'b' looking for beginning of object key string ({bad)".to_owned(),
        ),
        ("", "unexpected end of JSON input (<empty>)".to_owned()),
        (
            "{\"kind\":\"ConfigMap\"",
            "unexpected end of JSON input ({\"kind\":\"ConfigMap\")".to_owned(),
        ),
        (
            "[]",
            format!("json: cannot unmarshal array into Go value of type {HEAD} (5b5d)"),
        ),
        (
            "5",
            format!("json: cannot unmarshal number into Go value of type {HEAD} (35)"),
        ),
        (
            "\"x\"",
            format!("json: cannot unmarshal string into Go value of type {HEAD} (227822)"),
        ),
    ] {
        assert_eq!(
            strict(body, &CONFIG_MAP).unwrap_err(),
            format!(
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: {text}"
            )
        );
    }
}

#[test]
fn bytes_that_are_not_utf8_become_replacement_characters() {
    let decoded = decode(
        b"{\"data\":{\"k\":\"a\xffb\"}}",
        Syntax::Json,
        &CONFIG_MAP,
        FieldValidation::Warn,
    )
    .unwrap();
    assert_eq!(decoded.value["data"]["k"], "a\u{fffd}b");
}

#[test]
fn json_schemas_of_crds_may_be_booleans_or_lists_and_are_not_strict_inside() {
    let body = r#"{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"a":
        {"additionalProperties":true,"default":{"x":[1,null]},"items":{"type":"string","nope":1}}},"nope":1}}}]}}"#;
    let decoded = warn(body, &CRD);
    assert_eq!(
        decoded.warnings,
        ["unknown field \"spec.versions[0].schema.openAPIV3Schema.nope\""]
    );
    assert_eq!(
        decoded.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"],
        json!({"additionalProperties": true, "default": {"x": [1, null]}, "items": {"type": "string"}})
    );
}

#[test]
fn deep_and_long_nests_are_refused_without_harm() {
    for body in [
        "[".repeat(100_000),
        "{\"metadata\":".repeat(100_000),
        "{\"a\":".repeat(200) + "1" + &"}".repeat(200),
    ] {
        assert!(strict(&body, &CONFIG_MAP).is_err());
    }
}

#[test]
fn aliases_may_be_many_but_not_stand_for_more_than_a_request_may_be() {
    let head = "kind: ConfigMap\ndata:\n";
    let many: Vec<String> = (0..500).map(|place| format!("  k{place}: *text\n")).collect();
    let many = many.concat();
    let few = format!("{head}  first: &text hello\n{many}");
    let decoded = decode(few.as_bytes(), Syntax::Yaml, &CONFIG_MAP, FieldValidation::Strict).unwrap();
    assert_eq!(decoded.value["data"]["k499"], "hello");
    let nested: Vec<String> = (1..9)
        .map(|level| {
            format!(
                "  a{level}: &a{level} [{}]\n",
                vec![format!("*a{}", level - 1); 9].join(", ")
            )
        })
        .collect();
    let nested = nested.concat();
    for bomb in [
        format!("{head}  first: &text {}\n{many}", "x".repeat(50_000)),
        format!("{head}  a0: &a0 [x]\n{nested}"),
    ] {
        let refused = decode(bomb.as_bytes(), Syntax::Yaml, &CONFIG_MAP, FieldValidation::Ignore).unwrap_err();
        let why = "error converting YAML to JSON: yaml: document contains excessive aliasing";
        assert!(refused.message.contains(why), "{}", refused.message);
    }
}

#[test]
fn yaml_as_people_write_it_is_read() {
    let body = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: notes   # a comment
  labels: {tier: web, release: \"1.0\"}
data:
  text: |
    first
      second
  folded: >-
    one
    two
  number: \"5\"
  flag: 'true'
immutable: false
";
    let decoded = decode(body.as_bytes(), Syntax::Yaml, &CONFIG_MAP, FieldValidation::Strict).unwrap();
    assert_eq!(
        decoded.value,
        json!({"apiVersion":"v1","kind":"ConfigMap","immutable":false,
               "metadata":{"name":"notes","labels":{"tier":"web","release":"1.0"}},
               "data":{"text":"first\n  second\n","folded":"one two","number":"5","flag":"true"}})
    );
    let deployment = "spec:\n  replicas: 3\n  paused: true\n  template:\n    spec:\n      containers:\n      - name: a\n        ports:\n        - containerPort: 80\n          bogus: 1\n";
    let decoded = decode(deployment.as_bytes(), Syntax::Yaml, &DEPLOYMENT, FieldValidation::Warn).unwrap();
    assert_eq!(decoded.value["spec"]["replicas"], 3);
    assert_eq!(
        decoded.warnings,
        ["unknown field \"spec.template.spec.containers[0].ports[0].bogus\""]
    );
    let twice = decode(
        b"data:\n  a: x\n  a: z\n",
        Syntax::Yaml,
        &CONFIG_MAP,
        FieldValidation::Warn,
    )
    .unwrap();
    assert_eq!(twice.warnings, ["duplicate field \"data.a\""]);
}

#[test]
fn a_patched_value_is_worded_by_how_it_was_made() {
    let deployment = Schema::of("apps", "v1", "Deployment").unwrap();
    for (value, text) in [
        (json!({"spec":{"replicas":"many"}}), "unrecognized type: int32"),
        (
            json!({"spec":{"template":{"spec":{"containers":{"name":"c"}}}}}),
            "cannot restore slice from map",
        ),
        (json!({"metadata":{"labels":{"a":5}}}), "cannot convert int64 to string"),
        (json!({"spec":[]}), "cannot restore struct from: slice"),
    ] {
        let error = check(value, deployment, FieldValidation::Ignore, true).unwrap_err();
        assert_eq!(error.0, text);
    }
    let error = check(
        json!({"spec":{"replicas":"x"}}),
        deployment,
        FieldValidation::Ignore,
        false,
    )
    .unwrap_err();
    assert_eq!(
        error.0,
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
    );
}

#[test]
fn protobuf_is_refused_in_the_words_of_the_other_syntaxes() {
    let refuse = |body: &[u8]| {
        decode(body, Syntax::Protobuf, &CONFIG_MAP, FieldValidation::Warn)
            .unwrap_err()
            .message
    };
    assert_eq!(
        refuse(b"garbage"),
        "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a \
         protobuf message, expected prefix [107 56 115 0] (67617262616765)"
    );
    // k8s\0, then {1: {1: "v1", 2: "Secret"}}
    assert_eq!(
        refuse(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Secret"),
        "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown \
         conversion"
    );
    assert_eq!(
        refuse(b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07Unicorn"),
        "Unicorn in version \"v1\" cannot be handled as a ConfigMap: no kind \"Unicorn\" is registered for version \
         \"v1\" in scheme \"flatkube/schema\""
    );
}

#[test]
fn structures_are_counted_however_they_are_written() {
    for element in ["{}", "null", "{\"name\":\"a\"}"] {
        let many = |count: usize| format!(r#"{{"spec":{{"containers":[{}]}}}}"#, vec![element; count].join(","));
        assert!(strict(&many(1_000), &POD).is_ok());
        let refused = strict(&many(70_000), &POD).unwrap_err();
        assert!(refused.contains("more than 65536 structures"), "{element}: {refused}");
    }
    // Entries of maps are none.
    let entries: Vec<String> = (0..70_000).map(|i| format!(r#""k{i}":"""#)).collect();
    assert!(strict(&format!(r#"{{"data":{{{}}}}}"#, entries.join(",")), &CONFIG_MAP).is_ok());
}

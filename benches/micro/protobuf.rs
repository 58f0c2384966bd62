//! The seeded Pod and ConfigMap as client-go sends them: `application/vnd.kubernetes.protobuf`.

use serde_json::Value;

/// How a field is written, and where: its number, and below it what it holds.
enum Wire {
    Text,
    Varint,
    /// A message, or each of a list of messages.
    Message(&'static [Field]),
    /// Each of a list of texts.
    Texts,
    /// Each pair as a message of key and text.
    TextMap,
    /// Each pair as a message of key and `Quantity { string }`.
    QuantityMap,
    /// `IntOrString`.
    IntOrText,
}

/// Name in JSON, numbers that lead to the field (more than one where Go embeds a struct), and its form.
type Field = (&'static str, &'static [u8], Wire);

use Wire::{IntOrText, Message, QuantityMap, Text, TextMap, Texts, Varint};

const METADATA: &[Field] = &[
    ("name", &[1], Text),
    ("generateName", &[2], Text),
    ("namespace", &[3], Text),
    ("labels", &[11], TextMap),
    ("annotations", &[12], TextMap),
    (
        "ownerReferences",
        &[13],
        Message(&[
            ("kind", &[1], Text),
            ("name", &[3], Text),
            ("uid", &[4], Text),
            ("apiVersion", &[5], Text),
            ("controller", &[6], Varint),
            ("blockOwnerDeletion", &[7], Varint),
        ]),
    ),
];

const HTTP_GET: Wire = Message(&[("path", &[1], Text), ("port", &[2], IntOrText)]);
const PROBE: &[Field] = &[
    ("httpGet", &[1, 2], HTTP_GET),
    ("initialDelaySeconds", &[2], Varint),
    ("periodSeconds", &[4], Varint),
];

const CONTAINER: &[Field] = &[
    ("name", &[1], Text),
    ("image", &[2], Text),
    ("args", &[4], Texts),
    (
        "ports",
        &[6],
        Message(&[
            ("name", &[1], Text),
            ("containerPort", &[3], Varint),
            ("protocol", &[4], Text),
        ]),
    ),
    (
        "env",
        &[7],
        Message(&[
            ("name", &[1], Text),
            (
                "valueFrom",
                &[3],
                Message(&[(
                    "fieldRef",
                    &[1],
                    Message(&[("apiVersion", &[1], Text), ("fieldPath", &[2], Text)]),
                )]),
            ),
        ]),
    ),
    (
        "resources",
        &[8],
        Message(&[("limits", &[1], QuantityMap), ("requests", &[2], QuantityMap)]),
    ),
    (
        "volumeMounts",
        &[9],
        Message(&[
            ("name", &[1], Text),
            ("readOnly", &[2], Varint),
            ("mountPath", &[3], Text),
        ]),
    ),
    ("livenessProbe", &[10], Message(PROBE)),
    ("readinessProbe", &[11], Message(PROBE)),
];

const ITEMS: Wire = Message(&[("key", &[1], Text), ("path", &[2], Text)]);
const SOURCES: Wire = Message(&[
    (
        "configMap",
        &[3],
        Message(&[("name", &[1, 1], Text), ("items", &[2], ITEMS)]),
    ),
    (
        "serviceAccountToken",
        &[4],
        Message(&[("expirationSeconds", &[2], Varint), ("path", &[3], Text)]),
    ),
]);

const POD: &[Field] = &[
    ("metadata", &[1], Message(METADATA)),
    (
        "spec",
        &[2],
        Message(&[
            (
                "volumes",
                &[1],
                Message(&[
                    ("name", &[1], Text),
                    ("configMap", &[2, 19], Message(&[("name", &[1, 1], Text)])),
                    ("projected", &[2, 26], Message(&[("sources", &[1], SOURCES)])),
                ]),
            ),
            ("containers", &[2], Message(CONTAINER)),
            ("terminationGracePeriodSeconds", &[4], Varint),
            ("serviceAccountName", &[8], Text),
            ("nodeName", &[10], Text),
            (
                "tolerations",
                &[22],
                Message(&[
                    ("key", &[1], Text),
                    ("operator", &[2], Text),
                    ("effect", &[4], Text),
                    ("tolerationSeconds", &[5], Varint),
                ]),
            ),
        ]),
    ),
];

const CONFIG_MAP: &[Field] = &[("metadata", &[1], Message(METADATA)), ("data", &[2], TextMap)];

/// A body of `object`, the JSON of a seeded Pod or ConfigMap.
pub(crate) fn body(object: &Value) -> Vec<u8> {
    let kind = object["kind"].as_str().expect("a kind");
    let fields = if kind == "Pod" { POD } else { CONFIG_MAP };
    let meta = [bytes(1, b"v1"), bytes(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), bytes(1, &meta), bytes(2, &message(object, fields))].concat()
}

fn message(object: &Value, fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, path, wire) in fields {
        let Some((last, around)) = path.split_last() else {
            continue;
        };
        let value = &object[name];
        if !value.is_null() {
            let inner = around
                .iter()
                .rev()
                .fold(field(*last, value, wire), |inner, number| bytes(*number, &inner));
            out.extend(inner);
        }
    }
    out
}

fn field(number: u8, value: &Value, wire: &Wire) -> Vec<u8> {
    let text = |value: &Value| bytes(number, value.as_str().expect("a text").as_bytes());
    let pairs = |wrap: fn(&[u8]) -> Vec<u8>| {
        let pairs = value.as_object().expect("a map").iter().map(|(key, value)| {
            let value = wrap(value.as_str().expect("a text").as_bytes());
            bytes(number, &[bytes(1, key.as_bytes()), bytes(2, &value)].concat())
        });
        pairs.collect::<Vec<_>>().concat()
    };
    match wire {
        Text => text(value),
        Varint => varint_field(number, value),
        Message(fields) => match value {
            Value::Array(list) => list
                .iter()
                .flat_map(|element| bytes(number, &message(element, fields)))
                .collect(),
            object => bytes(number, &message(object, fields)),
        },
        Texts => value.as_array().expect("a list").iter().flat_map(text).collect(),
        TextMap => pairs(<[u8]>::to_vec),
        QuantityMap => pairs(|text| bytes(1, text)),
        IntOrText => match value.as_str() {
            Some(text) => bytes(number, &[vec![1 << 3, 1], bytes(3, text.as_bytes())].concat()),
            None => bytes(number, &[vec![1 << 3, 0], varint_field(2, value)].concat()),
        },
    }
}

fn varint_field(number: u8, value: &Value) -> Vec<u8> {
    let value = value
        .as_u64()
        .unwrap_or_else(|| u64::from(value.as_bool().expect("a number or a truth")));
    [varint(u64::from(number) << 3), varint(value)].concat()
}

fn bytes(number: u8, bytes: &[u8]) -> Vec<u8> {
    [
        varint(u64::from(number) << 3 | 2),
        varint(bytes.len() as u64),
        bytes.to_vec(),
    ]
    .concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

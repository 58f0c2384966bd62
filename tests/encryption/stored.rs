//! Keys and the store, without a server.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flatkube::encryption::Keyring;
use flatkube::resources::{self, KindArchiver};
use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{Change, Options, Precondition, Prepared, Store, Write};
use flatkube::tree;

fn configure(path: &Path, name: &str, byte: u8) {
    let secret = STANDARD.encode([byte; 32]);
    let config = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [{{resources: [secrets], \
         providers: [{{secretbox: {{keys: [{{name: {name}, secret: {secret}}}]}}}}]}}]}}"
    );
    fs::write(path, config).expect("it is written");
}

fn open(disk: &SimDisk, keyring: Option<&Arc<Keyring>>) -> Arc<Store> {
    let options = Options {
        background: false,
        sealing: keyring.map(|keyring| keyring.clone() as _),
        ..Options::default()
    };
    Store::open(Arc::new(disk.clone()), options, Arc::new(KindArchiver::default())).expect("it opens")
}

fn write(store: &Store, name: &str, prepared: Prepared) {
    let write = Write {
        resource: Arc::from("secrets"),
        key: format!("default/{name}"),
        precondition: Precondition::Any,
        uid: None,
        change: Change::Put(prepared),
    };
    let runtime = crate::process::runtime();
    runtime.block_on(store.write(write)).expect("it is written");
}

fn secret(name: &str) -> Prepared {
    let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}},"data":{{"of":"{name}"}}}}"#);
    let object: tree::Value = serde_json::from_str(&text).expect("JSON");
    resources::encode(resources::find("", "v1", "secrets").expect("it is built in"), &object).expect("an object")
}

fn get(store: &Store, name: &str) -> Result<String, String> {
    let view = store.view();
    let found = view.get("secrets", &format!("default/{name}")).expect("it is found");
    let found = found.expect("it is there");
    let json = found.json().map_err(|damaged| damaged.to_string())?;
    Ok(String::from_utf8(json.to_vec()).expect("text"))
}

#[test]
fn a_file_without_the_key_of_what_is_stored_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("encryption.yaml");
    configure(&file, "first", 1);
    let keyring = Keyring::read(&file).expect("it is in order");
    let store = open(&SimDisk::new(), Some(&keyring));
    write(&store, "a", secret("a"));
    let json = get(&store, "a").expect("it opens");
    assert!(json.contains(r#""data":{"of":"a"}"#), "{json}");
    assert_eq!(keyring.refresh(&store), Ok(false), "nothing has changed");
    for (name, byte, expected) in [("second", 1, "has no such key"), ("first", 2, "does not open it")] {
        configure(&file, name, byte);
        let refused = keyring.refresh(&store).expect_err("it is refused");
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(get(&store, "a").as_ref(), Ok(&json), "the keys stay");
    }
    fs::write(&file, "{").expect("it is written");
    keyring.refresh(&store).expect_err("it is refused");
    write(&store, "b", secret("b"));
    assert!(get(&store, "b").is_ok());
}

#[test]
fn the_ciphertext_of_one_object_opens_in_no_other_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("encryption.yaml");
    configure(&file, "first", 1);
    let keyring = Keyring::read(&file).expect("it is in order");
    let disk = SimDisk::new();
    let store = open(&disk, Some(&keyring));
    for name in ["a", "b", "c"] {
        write(&store, name, secret(name));
    }
    store.close();
    drop(store);
    // Who can write to the disk puts what is stored of `a` where `b` is.
    let store = open(&disk, None);
    let view = store.view();
    let found = view
        .get("secrets", "default/a")
        .expect("it is found")
        .expect("it is there");
    let (json, sidecar) = (found.json().expect("bytes"), found.sidecar_bytes().expect("bytes"));
    let text = String::from_utf8(json.to_vec()).expect("text");
    assert!(text.starts_with(r#"{"sealed":"k8s:enc:secretbox:v1:first:"#), "{text}");
    let mark = r#""resourceVersion":""#;
    let splice = text.find(mark).expect("it has a revision") + mark.len();
    let prepared = Prepared {
        json: [&json[..splice], b"\"}}"].concat(),
        splice: splice as u32,
        sidecar: sidecar.to_vec(),
    };
    write(&store, "b", prepared);
    store.close();
    drop((view, found, store));
    let store = open(&disk, Some(&keyring));
    let refused = get(&store, "b").expect_err("it does not open");
    assert!(refused.contains("secrets default/b cannot be decrypted"), "{refused}");
    assert!(get(&store, "a").is_ok() && get(&store, "c").is_ok(), "the others do");
}

#[test]
fn a_store_without_keys_says_so_before_it_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("encryption.yaml");
    configure(&file, "first", 1);
    let keyring = Keyring::read(&file).expect("it is in order");
    let disk = SimDisk::new();
    let store = open(&disk, Some(&keyring));
    store.prove_sealed().expect("nothing is sealed");
    write(&store, "a", secret("a"));
    store.prove_sealed().expect("it can be opened");
    store.maintain(true);
    store.prove_sealed().expect("from the shelf, too");
    store.close();
    drop(store);
    let store = open(&disk, None);
    let refused = store.prove_sealed().expect_err("it cannot be opened").to_string();
    assert!(
        refused.contains("secrets default/a is encrypted by k8s:enc:secretbox:v1:first"),
        "{refused}"
    );
}

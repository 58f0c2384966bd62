//! Schemas of custom resources.

use flatkube::schema::structural::Structural;
use flatkube::tree::Value;

/// A JSON schema and objects, a line each. Whatever the schema is, it compiles or is refused; of a schema that compiles: pruning,
/// filling and pruning again come to rest unless a default is at odds with its schema, what is unknown is told as often as it is there,
/// an object beside itself is judged, and all of it ends.
pub fn structural(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let Some(schema) = lines.next().and_then(|line| serde_json::from_slice::<Value>(line).ok()) else {
        return;
    };
    let Ok(schema) = Structural::compile(&schema) else {
        return;
    };
    for line in lines.take(8) {
        let Ok(mut object) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        if schema.prune(&mut object).is_err() {
            continue;
        }
        assert_eq!(
            schema.prune(&mut object).ok(),
            Some(Vec::new()),
            "pruning comes to rest"
        );
        if schema.fill(&mut object).is_err() {
            continue;
        }
        let filled = object.clone();
        let _ = schema.fill(&mut object);
        assert_eq!(object, filled, "filling comes to rest");
        let same: Value = serde_json::from_slice(object.to_json().as_bytes()).expect("JSON that was written");
        let alone = schema.validate(None, &object);
        let beside = schema.validate(Some(&same), &object);
        assert!(
            beside.len() <= alone.len(),
            "nothing is said of a change that was not said of a new object"
        );
    }
}

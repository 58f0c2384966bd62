//! Messages of `KeyManagementService` v2 (KEP-3299), in protobuf. All their fields are texts, bytes and maps from one to the other.

/// Longest key id and longest ciphertext of a seed, bytes (kube-apiserver's limits).
const PART_LEN_MAX: usize = 1024;
/// Most bytes of all annotations.
const ANNOTATIONS_LEN_MAX: usize = 32 * 1024;

/// A message while it is written.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds a text, bytes or another message.
    pub(super) fn with(mut self, number: u8, value: &[u8]) -> Self {
        self.0.push(number << 3 | 2);
        let mut len = value.len();
        while len >= 0x80 {
            self.0.push(len as u8 | 0x80);
            len >>= 7;
        }
        self.0.push(len as u8);
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The fields of a message that are texts, bytes or messages, in order; what else there is is passed over.
///
/// # Errors
/// Where the message is none.
pub(super) fn fields(mut message: &[u8]) -> Result<Vec<(u64, &[u8])>, String> {
    let malformed = || "it is no protobuf message".to_owned();
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message).ok_or_else(malformed)?;
        let len = match tag & 7 {
            0 => {
                varint(&mut message).ok_or_else(malformed)?;
                continue;
            }
            1 => 8,
            2 => varint(&mut message).ok_or_else(malformed)? as usize,
            5 => 4,
            _ => return Err(malformed()),
        };
        let (value, rest) = message.split_at_checked(len).ok_or_else(malformed)?;
        message = rest;
        if tag & 7 == 2 {
            fields.push((tag >> 3, value));
        }
    }
    Ok(fields)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The last value of a field, empty if it is missing: what protobuf says of fields that are there twice or not at all.
pub(super) fn last<'a>(fields: &[(u64, &'a [u8])], number: u64) -> &'a [u8] {
    let of_number = fields.iter().rev().find(|field| field.0 == number);
    of_number.map_or(b"", |field| field.1)
}

/// A seed as a plugin has encrypted it: all that it needs to decrypt it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrapped {
    pub(super) ciphertext: Vec<u8>,
    pub(super) key_id: String,
    /// Entries of the map of annotations, as they are.
    pub(super) annotations: Vec<Vec<u8>>,
}

impl Wrapped {
    /// From `EncryptResponse`, or from what [`Wrapped::decrypt_request`] wrote.
    pub(super) fn of(message: &[u8], numbers: [u64; 3]) -> Result<Wrapped, String> {
        let fields = fields(message)?;
        let [ciphertext, key_id, annotations] = numbers;
        let wrapped = Wrapped {
            ciphertext: last(&fields, ciphertext).to_vec(),
            key_id: text(last(&fields, key_id))?.to_owned(),
            annotations: fields
                .iter()
                .filter(|field| field.0 == annotations)
                .map(|field| field.1.to_vec())
                .collect(),
        };
        if wrapped.ciphertext.is_empty() || wrapped.ciphertext.len() > PART_LEN_MAX {
            return Err(format!("its ciphertext has not 1 to {PART_LEN_MAX} bytes"));
        }
        check_key_id(&wrapped.key_id)?;
        if wrapped.annotations.iter().map(Vec::len).sum::<usize>() > ANNOTATIONS_LEN_MAX {
            return Err(format!("its annotations have more than {ANNOTATIONS_LEN_MAX} bytes"));
        }
        Ok(wrapped)
    }

    /// `DecryptRequest`.
    pub(super) fn decrypt_request(&self, uid: &str) -> Vec<u8> {
        let mut message = Message::default().with(1, &self.ciphertext);
        if !uid.is_empty() {
            message = message.with(2, uid.as_bytes());
        }
        message = message.with(3, self.key_id.as_bytes());
        for annotation in &self.annotations {
            message = message.with(4, annotation);
        }
        message.bytes()
    }
}

/// The numbers of ciphertext, key id and annotations in `EncryptResponse` ...
pub(super) const IN_ANSWER: [u64; 3] = [1, 2, 3];
/// ... and in `DecryptRequest`, which is what is stored.
pub(super) const IN_REQUEST: [u64; 3] = [1, 3, 4];

/// A key id is there and not too long.
pub(super) fn check_key_id(key_id: &str) -> Result<(), String> {
    if key_id.is_empty() || key_id.len() > PART_LEN_MAX {
        return Err(format!("its key id has not 1 to {PART_LEN_MAX} bytes"));
    }
    Ok(())
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a text of it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_of_a_seed_is_what_the_plugin_needs() {
        let annotation = Message::default().with(1, b"local.kms").with(2, b"x").bytes();
        let answer = Message::default()
            .with(1, &[9; 300])
            .with(2, b"key-1")
            .with(3, &annotation)
            .bytes();
        let wrapped = Wrapped::of(&answer, IN_ANSWER).unwrap();
        assert_eq!((wrapped.ciphertext.len(), wrapped.key_id.as_str()), (300, "key-1"));
        assert_eq!(wrapped.annotations, [annotation]);
        assert_eq!(Wrapped::of(&wrapped.decrypt_request(""), IN_REQUEST).unwrap(), wrapped);
        assert_eq!(
            Wrapped::of(&wrapped.decrypt_request("uid"), IN_REQUEST).unwrap(),
            wrapped
        );
    }

    #[test]
    fn answers_that_are_none_are_refused() {
        for bytes in [
            &b"\x0a"[..],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0b",
            b"\x08",
            b"\x0a\x05abc",
            b"\x09abc",
        ] {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
        let of = |ciphertext: &[u8], key: &[u8]| {
            let answer = Message::default().with(1, ciphertext).with(2, key).bytes();
            Wrapped::of(&answer, IN_ANSWER)
        };
        assert!(of(b"c", b"k").is_ok());
        assert!(of(b"", b"k").is_err() && of(&[0; 1025], b"k").is_err());
        assert!(of(b"c", b"").is_err() && of(b"c", &[b'k'; 1025]).is_err() && of(b"c", b"\xff").is_err());
        assert_eq!(fields(b"\x08\x96\x01\x12\x01a\x1d1234").unwrap(), [(2, &b"a"[..])]);
    }
}

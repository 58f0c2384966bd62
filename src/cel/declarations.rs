//! Which functions there are, with which types: `declarations.txt`, read once.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::types::Type;

/// One way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Whether it is called on a value; that is the first of `args` then.
    pub(super) member: bool,
    pub(super) args: Vec<Type>,
    pub(super) result: Type,
    /// How many open types it has.
    pub(super) open: u32,
}

/// All overloads by the names of their functions.
pub(super) struct Declarations {
    pub(super) overloads: Vec<Overload>,
    names: HashMap<String, Vec<u32>>,
}

static DECLARATIONS: LazyLock<Declarations> = LazyLock::new(|| {
    let mut all = Declarations {
        overloads: Vec::new(),
        names: HashMap::new(),
    };
    for line in include_str!("declarations.txt").lines() {
        if !line.is_empty() && !line.starts_with('#') {
            all.read(line);
        }
    }
    all
});

impl Declarations {
    pub(super) fn all() -> &'static Declarations {
        &DECLARATIONS
    }

    /// The ways to call a function; none if there is no such function.
    pub(super) fn of(&self, name: &str) -> &[u32] {
        self.names.get(name).map_or(&[], Vec::as_slice)
    }

    /// All names of functions.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    fn read(&mut self, line: &str) {
        // `ordered`, `comparable` and `summable` stand for a line for each type that is.
        if line.contains("(ordered, ordered)") {
            for (one, other) in ORDERED {
                self.read(&line.replace("ordered, ordered", &format!("{one}, {other}")));
            }
            return;
        }
        for (word, types) in [("comparable", COMPARABLE), ("summable", SUMMABLE)] {
            if line.contains(word) {
                for one in types {
                    self.read(&line.replace(word, one));
                }
                return;
            }
        }
        let (call, result) = line.split_once(" -> ").expect("a line of the table has a result");
        let (name, args) = call
            .strip_suffix(')')
            .and_then(|call| call.rsplit_once('('))
            .expect("a line of the table has arguments");
        let mut reader = Reader { open: 0 };
        // A name whose first part is no type is a name with a dot in it.
        let target = name
            .rsplit_once('.')
            .and_then(|(target, method)| Some((reader.read(target)?, method)));
        let (target, name) = match target {
            Some((target, method)) => (Some(target), method),
            None => (None, name),
        };
        let member = target.is_some();
        let mut types: Vec<Type> = target.into_iter().collect();
        types.extend(split(args).map(|text| reader.read(text).expect("a type of the table")));
        let result = reader.read(result).expect("a type of the table");
        self.names
            .entry(name.to_owned())
            .or_default()
            .push(self.overloads.len() as u32);
        self.overloads.push(Overload {
            member,
            args: types,
            result,
            open: reader.open,
        });
    }
}

const COMPARABLE: &[&str] = &[
    "int",
    "uint",
    "double",
    "bool",
    "duration",
    "timestamp",
    "string",
    "bytes",
];
const SUMMABLE: &[&str] = &["int", "uint", "double", "duration"];
const ORDERED: [(&str, &str); 14] = [
    ("bool", "bool"),
    ("int", "int"),
    ("int", "double"),
    ("int", "uint"),
    ("uint", "uint"),
    ("uint", "double"),
    ("uint", "int"),
    ("double", "double"),
    ("double", "int"),
    ("double", "uint"),
    ("string", "string"),
    ("bytes", "bytes"),
    ("timestamp", "timestamp"),
    ("duration", "duration"),
];

/// Names in the table and what they are called.
pub(super) const OPAQUE: [(&str, &str); 11] = [
    ("Quantity", "kubernetes.Quantity"),
    ("URL", "kubernetes.URL"),
    ("IP", "net.IP"),
    ("CIDR", "net.CIDR"),
    ("Semver", "kubernetes.Semver"),
    ("Format", "kubernetes.NamedFormat"),
    ("Authorizer", "kubernetes.authorization.Authorizer"),
    ("PathCheck", "kubernetes.authorization.PathCheck"),
    ("GroupCheck", "kubernetes.authorization.GroupCheck"),
    ("ResourceCheck", "kubernetes.authorization.ResourceCheck"),
    ("Decision", "kubernetes.authorization.Decision"),
];

/// Parts of a list with commas that stand in no angle brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

struct Reader {
    /// How many open types were met.
    open: u32,
}

impl Reader {
    /// Reads a type. `None` for what is none.
    fn read(&mut self, text: &str) -> Option<Type> {
        if let Some((name, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
            let inner: Vec<Type> = split(inner).map(|part| self.read(part)).collect::<Option<_>>()?;
            return match (name, &inner[..]) {
                ("list", [items]) => Some(Type::list(items.clone())),
                ("map", [keys, values]) => Some(Type::map(keys.clone(), values.clone())),
                ("optional", [value]) => Some(Type::optional(value.clone())),
                ("type", [one]) => Some(Type::Type(std::sync::Arc::new(one.clone()))),
                _ => None,
            };
        }
        Some(match text {
            "dyn" => Type::Dyn,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            _ => {
                if let [letter @ b'A'..=b'Z'] = text.as_bytes() {
                    let number = u32::from(letter - b'A');
                    self.open = self.open.max(number + 1);
                    return Some(Type::Open(number));
                }
                let (_, name) = OPAQUE.iter().find(|(short, _)| *short == text)?;
                Type::Opaque(name)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Declarations;

    #[test]
    fn every_line_is_read_as_it_stands() {
        let all = Declarations::all();
        assert!(all.overloads.len() > 250, "{}", all.overloads.len());
        let shown = |name: &str| -> Vec<String> {
            let overloads = all.of(name).iter().map(|at| &all.overloads[*at as usize]);
            overloads
                .map(|it| {
                    let args: Vec<String> = it.args.iter().map(ToString::to_string).collect();
                    format!(
                        "{}({}) {}",
                        if it.member { "." } else { "" },
                        args.join(", "),
                        it.result
                    )
                })
                .collect()
        };
        assert_eq!(shown("ip"), ["(string) net.IP", ".(net.CIDR) net.IP"]);
        assert_eq!(shown("ip.isCanonical"), ["(string) bool"]);
        assert_eq!(shown("getQuery"), [".(kubernetes.URL) map(string, list(string))"]);
        assert_eq!(shown("_<_").len(), 14);
        assert_eq!(shown("sum").len(), 4);
        assert_eq!(shown("optional.none"), ["() optional_type(dyn)"]);
        assert_eq!(shown("nothing"), Vec::<String>::new());
    }
}

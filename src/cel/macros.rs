//! Calls that are no functions: `has`, `all`, `map`, `cel.bind`, …

use std::sync::Arc;

use super::ast::{Fold, FoldKind, Id, Kind};
use super::parser::{Parser, Stop};

const NOT_A_NAME: &str = "argument must be a simple name";

impl Parser<'_> {
    /// `function(args)`, or what the macro of that name makes of it.
    pub(super) fn global_call(&mut self, at: u32, function: Arc<str>, args: Vec<Id>) -> Result<Id, Stop> {
        if &*function == "has" && args.len() == 1 {
            let Kind::Select {
                operand,
                field,
                test: false,
                optional: false,
            } = self.kind(args[0])
            else {
                self.tell(self.place(args[0]), "invalid argument to has() macro");
                return Err(Stop);
            };
            let (operand, field) = (*operand, field.clone());
            let kind = Kind::Select {
                operand,
                field,
                test: true,
                optional: false,
            };
            return self.node(at, kind, &[operand]);
        }
        let below = args.clone();
        let kind = Kind::Call {
            function,
            target: None,
            args,
        };
        self.node(at, kind, &below)
    }

    /// `target.function(args)`, or what the macro of that name makes of it.
    pub(super) fn member_call(&mut self, at: u32, target: Id, function: Arc<str>, args: Vec<Id>) -> Result<Id, Stop> {
        let fold = match (&*function, args.len()) {
            ("all", 2 | 3) => Some(FoldKind::All),
            ("exists", 2 | 3) => Some(FoldKind::Exists),
            ("exists_one" | "existsOne", 2 | 3) => Some(FoldKind::ExistsOne),
            ("map", 2 | 3) | ("transformList", 3 | 4) => Some(FoldKind::Map),
            ("filter", 2) => Some(FoldKind::Filter),
            ("transformMap", 3 | 4) => Some(FoldKind::TransformMap),
            ("transformMapEntry", 3 | 4) => Some(FoldKind::TransformMapEntry),
            _ => None,
        };
        if let Some(what) = fold {
            return self.fold(at, target, &function, what, &args);
        }
        match (&*function, &args[..]) {
            ("bind", [name, value, body]) if matches!(self.kind(target), Kind::Ident(text) if &**text == "cel") => {
                let (value, body) = (*value, *body);
                let Some(name) = self.simple_name(*name) else {
                    self.tell(
                        self.place(*name),
                        "cel.bind() variable names must be simple identifiers",
                    );
                    return Err(Stop);
                };
                self.node(at, Kind::Bind { name, value, body }, &[value, body])
            }
            ("optMap" | "optFlatMap", [name, body]) => {
                let body = *body;
                let Some(name) = self.simple_name(*name) else {
                    let what = format!("{function}() variable name must be a simple identifier");
                    self.tell(self.place(*name), what);
                    return Err(Stop);
                };
                let flat = &*function == "optFlatMap";
                let kind = Kind::OptionalMap {
                    target,
                    name,
                    body,
                    flat,
                };
                self.node(at, kind, &[target, body])
            }
            ("sortBy", [name, key]) => {
                let key = *key;
                let Some(name) = self.simple_name(*name) else {
                    self.tell(self.place(*name), NOT_A_NAME);
                    return Err(Stop);
                };
                self.node(at, Kind::SortBy { target, name, key }, &[target, key])
            }
            _ => {
                let mut below = args.clone();
                below.push(target);
                let kind = Kind::Call {
                    function,
                    target: Some(target),
                    args,
                };
                self.node(at, kind, &below)
            }
        }
    }

    fn fold(&mut self, at: u32, range: Id, function: &str, what: FoldKind, args: &[Id]) -> Result<Id, Stop> {
        let two = match function {
            "map" | "filter" => false,
            "all" | "exists" | "exists_one" | "existsOne" => args.len() == 3,
            _ => true,
        };
        let names = if two { 2 } else { 1 };
        let mut found = Vec::with_capacity(names);
        for arg in &args[..names] {
            let Some(name) = self.simple_name(*arg) else {
                self.tell(self.place(*arg), NOT_A_NAME);
                return Err(Stop);
            };
            if found.contains(&name) {
                self.tell(self.place(*arg), format!("duplicate variable name: {name}"));
                return Err(Stop);
            }
            found.push(name);
        }
        let (filter, body) = match args[names..] {
            [body] => (None, body),
            [filter, body] => (Some(filter), body),
            _ => return Err(Stop),
        };
        let mut found = found.into_iter();
        let Some(first) = found.next() else { return Err(Stop) };
        let mut below = vec![range, body];
        below.extend(filter);
        let fold = Fold {
            what,
            range,
            names: (first, found.next()),
            filter,
            body,
        };
        self.node(at, Kind::Fold(Box::new(fold)), &below)
    }

    fn simple_name(&self, id: Id) -> Option<Arc<str>> {
        match self.kind(id) {
            Kind::Ident(name) if !name.starts_with('.') => Some(name.clone()),
            _ => None,
        }
    }
}

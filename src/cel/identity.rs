//! What expressions of an AuthenticationConfiguration may speak of: the claims of a token, and the user that is made of them.

use super::ast::Kind;
use super::environment::{Environment, user_info};
use super::program::Program;
use super::types::Type;

impl Environment {
    /// `claims`: what a token says, a map.
    pub fn of_claims() -> Environment {
        Environment::new().with_type("claims", Type::map(Type::String, Type::Dyn))
    }

    /// `user`: `username`, `uid`, `groups` and `extra`.
    pub fn of_user() -> Environment {
        Environment::new().with_type("user", user_info())
    }
}

impl Program {
    /// Whether the expression reads `variable.field` somewhere.
    pub fn reads(&self, variable: &str, field: &str) -> bool {
        let nodes = &self.checked.ast.nodes;
        nodes.iter().any(|node| {
            let Kind::Select {
                operand, field: read, ..
            } = &node.kind
            else {
                return false;
            };
            let Kind::Ident(name) = &self.checked.ast.node(*operand).kind else {
                return false;
            };
            **name == *variable && **read == *field
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_a_map_of_anything_and_the_user_has_its_fields() {
        let claims = Environment::of_claims();
        let made = |text: &str| Program::compile(text, &claims);
        let program = made("claims.?email_verified.orValue(true) && claims.email.endsWith('@x')").unwrap();
        assert!(program.reads("claims", "email_verified") && program.reads("claims", "email"));
        assert!(!program.reads("claims", "sub"));
        assert_eq!(program.gives(), "bool");
        made("user.username").unwrap_err();
        let user = Environment::of_user();
        let program = Program::compile("user.groups.all(group, !group.startsWith('system:'))", &user).unwrap();
        assert_eq!(program.gives(), "bool");
        Program::compile("user.name", &user).unwrap_err();
    }
}

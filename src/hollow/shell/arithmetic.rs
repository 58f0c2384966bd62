//! Arithmetic of `$((…))` and `expr`: `+ - * / %`, comparisons, parentheses.

/// The value of an expression; `None` for what is not understood.
pub(super) fn value(text: &str) -> Option<i64> {
    let spaced: String = text
        .chars()
        .flat_map(|letter| {
            if "()+-*/%<>=!&|".contains(letter) {
                vec![' ', letter, ' ']
            } else {
                vec![letter]
            }
        })
        .collect();
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let value = sum(&tokens, &mut at, 0)?;
    (at == tokens.len()).then_some(value)
}

fn sum(tokens: &[&str], at: &mut usize, depth: usize) -> Option<i64> {
    let mut left = product(tokens, at, depth)?;
    while let Some(sign @ ("+" | "-")) = tokens.get(*at).copied() {
        *at += 1;
        let right = product(tokens, at, depth)?;
        left = if sign == "+" {
            left.checked_add(right)?
        } else {
            left.checked_sub(right)?
        };
    }
    Some(left)
}

fn product(tokens: &[&str], at: &mut usize, depth: usize) -> Option<i64> {
    let mut left = single(tokens, at, depth)?;
    while let Some(sign @ ("*" | "/" | "%")) = tokens.get(*at).copied() {
        *at += 1;
        let right = single(tokens, at, depth)?;
        left = match sign {
            "*" => left.checked_mul(right)?,
            "/" => left.checked_div(right)?,
            _ => left.checked_rem(right)?,
        };
    }
    Some(left)
}

fn single(tokens: &[&str], at: &mut usize, depth: usize) -> Option<i64> {
    let token = *tokens.get(*at)?;
    *at += 1;
    match token {
        _ if depth > 16 => None,
        "(" => {
            let value = sum(tokens, at, depth + 1)?;
            let is_closed = tokens.get(*at) == Some(&")");
            *at += 1;
            is_closed.then_some(value)
        }
        "-" => single(tokens, at, depth + 1)?.checked_neg(),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn expressions_have_values_and_what_is_none_has_not() {
        assert_eq!(value("2 + 3*4 - 10/5"), Some(12));
        assert_eq!(value("(1+2) % 2"), Some(1));
        assert_eq!(value("-3"), Some(-3));
        for wrong in ["", "1 +", "1/0", "a", "(1", "9223372036854775807+1", &"(".repeat(50)] {
            assert_eq!(value(wrong), None, "{wrong}");
        }
    }
}

//! Durations as Kubernetes shows them to people (`90s`, `5m10s`, `2y5d`).

/// Writes a duration of that many seconds, with at most two units and less detail the longer it is. A clock that is off
/// by one second shows `0s`; anything further in the future is `<invalid>`.
pub fn write_human_duration(seconds: i64, out: &mut Vec<u8>) {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let one = |out: &mut Vec<u8>, count: i64, unit: u8| {
        out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
        out.push(unit);
    };
    let two = |out: &mut Vec<u8>, large: i64, large_unit: u8, small: i64, small_unit: u8| {
        one(out, large, large_unit);
        if small != 0 {
            one(out, small, small_unit);
        }
    };
    match seconds {
        ..=-2 => out.extend_from_slice(b"<invalid>"),
        -1 => out.extend_from_slice(b"0s"),
        0..120 => one(out, seconds, b's'),
        _ if minutes < 10 => two(out, minutes, b'm', seconds % 60, b's'),
        _ if minutes < 3 * 60 => one(out, minutes, b'm'),
        _ if hours < 8 => two(out, hours, b'h', minutes % 60, b'm'),
        _ if hours < 2 * 24 => one(out, hours, b'h'),
        _ if hours < 8 * 24 => two(out, hours / 24, b'd', hours % 24, b'h'),
        _ if hours < 2 * 365 * 24 => one(out, hours / 24, b'd'),
        _ if hours < 8 * 365 * 24 => two(out, hours / 24 / 365, b'y', hours / 24 % 365, b'd'),
        _ => one(out, hours / 24 / 365, b'y'),
    }
}

/// [`write_human_duration`] into a new text.
pub fn human_duration(seconds: i64) -> String {
    let mut out = Vec::new();
    write_human_duration(seconds, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::human_duration;

    #[test]
    fn each_range_of_durations_has_its_own_detail() {
        const M: i64 = 60;
        const H: i64 = 60 * M;
        const D: i64 = 24 * H;
        const Y: i64 = 365 * D;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (9 * M + 59, "9m59s"),
            (10 * M + 30, "10m"),
            (179 * M, "179m"),
            (3 * H, "3h"),
            (7 * H + 59 * M, "7h59m"),
            (8 * H + M, "8h"),
            (47 * H, "47h"),
            (2 * D, "2d"),
            (7 * D + 23 * H, "7d23h"),
            (8 * D + H, "8d"),
            (2 * Y - H, "729d"),
            (2 * Y, "2y"),
            (2 * Y + 5 * D, "2y5d"),
            (8 * Y - D, "7y364d"),
            (8 * Y + 9 * D, "8y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds} s");
        }
    }
}

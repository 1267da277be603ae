//! Numbers as people write them.

/// A number, perhaps with an SI prefix, such as `400M`.
pub fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        b'G' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().map(|number| number * factor)
}

/// A factor of the present value, such as `2x` or `0.5x`.
pub(super) fn factor(text: &str) -> Option<f64> {
    text.trim().strip_suffix('x')?.parse().ok()
}

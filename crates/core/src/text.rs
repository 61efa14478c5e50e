//! Text of somebody else's, as it may be shown.

/// The first `most` characters, with an ellipsis where there are more; no control character stays one.
pub fn shortened(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

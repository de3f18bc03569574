//! Characters that are not seen, but change what is.

/// Whether a character is a control character, or only formats text, such as those that reverse its order. In text from
/// elsewhere it can move the cursor of a terminal or make text look like other text; Rust refuses some of them in comments.
///
/// ```
/// use chappe_machine::is_invisible;
/// assert!(is_invisible('\u{9b}') && is_invisible('\u{202e}'));
/// assert!(!is_invisible(' ') && !is_invisible('ü'));
/// ```
#[must_use]
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

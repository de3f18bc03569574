//! XML for people: one element a line.

use chappe_xml::{Element, Node, Str};

/// White space of XML (XML 1.0, 2.3). Other spaces are text.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The text of an element. White space is changed only between elements, where no text stands.
pub(super) fn pretty(element: &Element) -> String {
    let mut indented = element.clone();
    indent(&mut indented, 1);
    let mut text = indented.to_text();
    text.push('\n');
    text
}

fn indent(element: &mut Element, depth: usize) {
    let is_element = |node: &Node| matches!(node, Node::Element(_));
    let is_text = |node: &Node| matches!(node, Node::Text(text) if !text.trim_matches(WHITE_SPACE).is_empty());
    // White space in a leaf is its value.
    if !element.children.iter().any(is_element) || element.children.iter().any(is_text) {
        return;
    }
    let children = std::mem::take(&mut element.children);
    let line = |depth| Node::Text(Str::Owned(format!("\n{}", "  ".repeat(depth))));
    for child in children {
        if let Node::Element(mut child) = child {
            indent(&mut child, depth + 1);
            element.children.push(line(depth));
            element.children.push(Node::Element(child));
        }
    }
    element.children.push(line(depth - 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_space_between_elements_is_added() {
        let element = Element::parse(b"<a><b>x <c/></b><d><e> y</e></d></a>").unwrap();
        let text = pretty(&element);
        assert_eq!(
            text,
            "<a>\n  <b>x <c/></b>\n  <d>\n    <e> y</e>\n  </d>\n</a>\n"
        );
    }

    #[test]
    fn white_space_that_is_a_value_is_kept() {
        let element = Element::parse("<a> <b>  </b><c>\n</c><d>\u{a0}<e/></d></a>".as_bytes());
        let text = pretty(&element.unwrap());
        let expected = "<a>\n  <b>  </b>\n  <c>\n</c>\n  <d>\u{a0}<e/></d>\n</a>\n";
        assert_eq!(text, expected);
    }
}

//! Strict JSON (RFC 8259) with the place of every value.
//!
//! `serde_json` has no places and accepts duplicate keys.

use std::collections::HashMap;

use crate::document::budget::{Budget, check_depth};
use crate::document::{DocumentError, DocumentProblem, Key, Node, Place, Value, excerpt};

pub(super) fn parse(text: &str) -> Result<Node, DocumentError> {
    let mut reader = Reader {
        rest: text,
        place: Place::START,
        budget: Budget::new(),
    };
    reader.skip_white_space();
    if reader.rest.is_empty() {
        return Err(DocumentError::new(
            Some(reader.place),
            DocumentProblem::Empty,
        ));
    }
    let root = reader.value(0)?;
    reader.skip_white_space();
    match reader.peek() {
        None => Ok(root),
        Some(_) => Err(reader.unexpected("the end of the text")),
    }
}

struct Reader<'text> {
    rest: &'text str,
    place: Place,
    budget: Budget,
}

impl<'text> Reader<'text> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.rest = &self.rest[character.len_utf8()..];
        self.place = self.place.past(character);
        Some(character)
    }

    /// Skips the next character if it is `expected`; returns whether it is.
    fn take_if(&mut self, expected: char) -> bool {
        let is_next = self.peek() == Some(expected);
        if is_next {
            self.next();
        }
        is_next
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'text str {
        let start = self.rest;
        while self.peek().is_some_and(&accept) {
            self.next();
        }
        &start[..start.len() - self.rest.len()]
    }

    fn skip_white_space(&mut self) {
        self.take_while(|character| matches!(character, ' ' | '\t' | '\n' | '\r'));
    }

    fn syntax(&self, place: Place, reason: String) -> DocumentError {
        DocumentError::new(Some(place), DocumentProblem::Syntax { reason })
    }

    fn unexpected(&self, expected: &str) -> DocumentError {
        let found = self.peek().map_or_else(
            || "the end of the text".to_owned(),
            |character| format!("`{}`", excerpt(&character.to_string())),
        );
        self.syntax(self.place, format!("found {found}, expected {expected}"))
    }

    fn expect(&mut self, expected: char) -> Result<(), DocumentError> {
        if self.take_if(expected) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("`{expected}`")))
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, DocumentError> {
        let place = self.place;
        self.budget.charge(place, 1, 0)?;
        let value = match self.peek() {
            Some('{') => {
                check_depth(place, depth + 1)?;
                self.map(depth + 1)?
            }
            Some('[') => {
                check_depth(place, depth + 1)?;
                self.list(depth + 1)?
            }
            Some('"') => Value::Text(self.text()?),
            Some('-' | '0'..='9') => Value::Number(self.number()?),
            Some('a'..='z' | 'A'..='Z') => self.word()?,
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Node { place, value })
    }

    fn list(&mut self, depth: usize) -> Result<Value, DocumentError> {
        self.expect('[')?;
        let mut items = Vec::new();
        self.skip_white_space();
        if self.take_if(']') {
            return Ok(Value::List(items));
        }
        loop {
            self.skip_white_space();
            items.push(self.value(depth)?);
            self.skip_white_space();
            if self.take_if(']') {
                return Ok(Value::List(items));
            }
            if !self.take_if(',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, DocumentError> {
        self.expect('{')?;
        let mut entries = Vec::new();
        let mut seen: HashMap<String, Place> = HashMap::new();
        self.skip_white_space();
        if self.take_if('}') {
            return Ok(Value::Map(entries));
        }
        loop {
            self.skip_white_space();
            let place = self.place;
            if self.peek() != Some('"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let name = self.text()?;
            if let Some(first) = seen.insert(name.clone(), place) {
                return Err(DocumentError::new(
                    Some(place),
                    DocumentProblem::DuplicateKey {
                        name: excerpt(&name),
                        first,
                    },
                ));
            }
            self.skip_white_space();
            self.expect(':')?;
            self.skip_white_space();
            let node = self.value(depth)?;
            entries.push((Key { name, place }, node));
            self.skip_white_space();
            if self.take_if('}') {
                return Ok(Value::Map(entries));
            }
            if !self.take_if(',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn word(&mut self) -> Result<Value, DocumentError> {
        let place = self.place;
        match self.take_while(char::is_alphanumeric) {
            "null" => Ok(Value::Null),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            other => Err(self.syntax(
                place,
                format!(
                    "found `{}`, expected a value; text needs double quotes",
                    excerpt(other)
                ),
            )),
        }
    }

    fn number(&mut self) -> Result<String, DocumentError> {
        let place = self.place;
        let text = self.take_while(|character| {
            character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.' | '_')
        });
        if is_number(text) {
            Ok(text.to_owned())
        } else {
            Err(self.syntax(
                place,
                format!(
                    "found `{}`, expected a number in the syntax of JSON",
                    excerpt(text)
                ),
            ))
        }
    }

    fn text(&mut self) -> Result<String, DocumentError> {
        let start = self.place;
        self.expect('"')?;
        let mut text = String::new();
        loop {
            let plain =
                self.take_while(|character| character >= ' ' && !matches!(character, '"' | '\\'));
            self.budget.charge(start, 0, plain.len())?;
            text.push_str(plain);
            match self.peek() {
                Some('"') => {
                    self.next();
                    return Ok(text);
                }
                Some('\\') => {
                    self.next();
                    text.push(self.escaped()?);
                }
                Some(_) => return Err(self.unexpected("a control character as `\\u00..`")),
                None => {
                    return Err(self.syntax(start, "this text is not closed by `\"`".to_owned()));
                }
            }
        }
    }

    fn escaped(&mut self) -> Result<char, DocumentError> {
        let place = self.place;
        let character = match self.next() {
            Some('"') => '"',
            Some('\\') => '\\',
            Some('/') => '/',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => return self.unicode_escape(place),
            _ => return Err(self.syntax(place, "found an unknown escape after `\\`".to_owned())),
        };
        Ok(character)
    }

    fn unicode_escape(&mut self, place: Place) -> Result<char, DocumentError> {
        let first = self.hexadecimal(place)?;
        let code = if (0xd800..0xdc00).contains(&first) {
            let paired = self.take_if('\\') && self.take_if('u');
            let second = if paired { self.hexadecimal(place)? } else { 0 };
            if !(0xdc00..0xe000).contains(&second) {
                return Err(self.syntax(place, "found half of a surrogate pair".to_owned()));
            }
            0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code)
            .ok_or_else(|| self.syntax(place, "found half of a surrogate pair".to_owned()))
    }

    fn hexadecimal(&mut self, place: Place) -> Result<u32, DocumentError> {
        (0..4).try_fold(0, |code, _| {
            self.next()
                .and_then(|character| character.to_digit(16))
                .map(|digit| code * 16 + digit)
                .ok_or_else(|| {
                    self.syntax(
                        place,
                        "expected four hexadecimal digits after `\\u`".to_owned(),
                    )
                })
        })
    }
}

pub(super) fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let exponent = exponent.map(|digits| digits.strip_prefix(['+', '-']).unwrap_or(digits));
    is_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(is_digits)
        && exponent.is_none_or(is_digits)
}

pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

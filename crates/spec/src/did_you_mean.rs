//! "Did you mean": finds the known word that is most similar to an unknown one.

/// Longer words match nothing, because the comparison is quadratic.
const WORD_CHARACTERS_MAX: usize = 64;

/// Shorter words do not match as the start of another word.
const START_LETTERS_MIN: usize = 3;

/// Returns the word of `known` that is most similar to `word`.
///
/// Words are similar if one is the start of the other, or if at most a third of the letters are
/// added, dropped, replaced or swapped. Case, `_`, `-` and spaces do not count, so `timeoutMs` and
/// `timeout_ms` are most similar.
pub fn nearest<'known>(
    word: &str,
    known: impl IntoIterator<Item = &'known str>,
) -> Option<&'known str> {
    known
        .into_iter()
        .filter(|candidate| *candidate != word)
        .filter_map(|candidate| Some((difference(word, candidate)?, candidate)))
        .min_by_key(|(difference, _)| *difference)
        .map(|(_, candidate)| candidate)
}

/// Returns the number of differences between similar words; `None` if they are not similar.
#[must_use]
pub fn difference(word: &str, other: &str) -> Option<usize> {
    let too_long = |word: &str| word.chars().count() > WORD_CHARACTERS_MAX;
    if too_long(word) || too_long(other) {
        return None;
    }
    let (plain, other) = (unstyled(word), unstyled(other));
    let letters = |word: &String| word.chars().count();
    let (shorter, longer) = if letters(&plain) < letters(&other) {
        (&plain, &other)
    } else {
        (&other, &plain)
    };
    // Counts letters that are added, dropped, replaced or swapped with their neighbour.
    let distance = strsim::osa_distance(&plain, &other);
    if distance <= letters(longer) / 3 {
        return Some(distance);
    }
    (letters(shorter) >= START_LETTERS_MIN && longer.starts_with(shorter.as_str()))
        .then_some(distance)
}

/// The letters and digits of `word` in lower case.
fn unstyled(word: &str) -> String {
    word.chars()
        .filter(|character| !matches!(character, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_word_is_found() {
        let known = ["timeout_ms", "memory_mb", "cpu_ms", "run"];
        for (word, expected) in [
            ("timeuot_ms", Some("timeout_ms")),
            ("timeoutMs", Some("timeout_ms")),
            ("memory-mb", Some("memory_mb")),
            ("rnu", Some("run")),
            ("cpu", Some("cpu_ms")),
            ("memory", Some("memory_mb")),
            ("colour", None),
            ("ru", Some("run")),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }

    #[test]
    fn a_huge_word_is_not_compared() {
        assert_eq!(nearest(&"a".repeat(1 << 20), ["run"]), None);
    }
}

//! Headers that contradict themselves or each other.

use crate::arena::{Arena, kept, refused, refused_in};
use support::tar::{Tar, header, record, seal};

///
#[test]
fn sparse_files_are_refused() {
    let gnu = Tar::new().with(b'S', b"f", 0, |block| {
        block[257..265].copy_from_slice(b"ustar  \0");
        block[483..495].copy_from_slice(b"\x80\0\0\0\0\0\x01\0\0\0\0\0");
    });
    refused(&gnu.gz(), "entry_type");
    for records in [
        &[
            ("GNU.sparse.major", &b"1"[..]),
            ("GNU.sparse.realsize", b"1099511627776"),
        ][..],
        &[
            ("GNU.sparse.size", b"1099511627776"),
            ("GNU.sparse.map", b"0,0"),
        ],
        &[("GNU.sparse.name", b"../x")],
        &[("SCHILY.realsize", b"1099511627776")],
    ] {
        let arena = Arena::new();
        refused_in(
            &arena,
            &Tar::new().pax(records).file("f", b"0\n").gz(),
            "sparse_file",
        );
        assert!(arena.found().is_empty());
    }
}

///
#[test]
fn a_sparse_map_of_a_million_fragments_is_refused_unread() {
    let map = "0,1,".repeat(200_000);
    let tar = Tar::new()
        .pax(&[("GNU.sparse.map", map.as_bytes())])
        .file("f", b"x");
    refused(&tar.gz(), "sparse_file");
    let map = "0,1,".repeat(300_000);
    let tar = Tar::new()
        .pax(&[("GNU.sparse.map", map.as_bytes())])
        .file("f", b"x");
    refused(&tar.gz(), "extension_too_long");
    let overlapping = Tar::new()
        .pax(&[("GNU.sparse.map", b"0,10,5,10,-1,3")])
        .file("f", b"x");
    refused(&overlapping.gz(), "sparse_file");
}

/// parsers of the header and of the pax header would see different archives.
#[test]
fn an_entry_hidden_in_the_data_of_another_is_never_unpacked() {
    let mut hidden = header(b'0', b"hidden", 0).to_vec();
    hidden.resize(1024, 0);
    for (header_size, pax_size) in [(0, "1024"), (1024, "0"), (1024, "512"), (512, "1024")] {
        let arena = Arena::new();
        let tar = Tar::new()
            .pax(&[("size", pax_size.as_bytes())])
            .raw(&header(b'0', b"outer", header_size))
            .raw(&hidden)
            .file("after", b"x");
        let error = refused_in(&arena, &tar.gz(), "two_sizes");
        assert!(error.to_string().contains("in the pax header"), "{error}");
        assert!(arena.found().is_empty());
    }
    let tar = Tar::new()
        .pax(&[("size", b"1024")])
        .raw(&header(b'0', b"outer", 1024))
        .raw(&hidden);
    let (arena, _) = kept(&tar.gz());
    assert_eq!(
        (arena.found(), arena.bytes()),
        (vec!["outer".to_owned()], 1024)
    );
}

/// a size that ustar cannot hold is taken from pax, and meets the limit.
#[test]
fn a_pax_size_beyond_the_header_is_the_size() {
    let tar = Tar::new()
        .pax(&[("size", b"8589934592")])
        .raw(&header(b'0', b"f", 0))
        .file("hidden", b"x");
    let arena = Arena::new();
    refused_in(&arena, &tar.gz(), "unpacked_bytes_limit");
    assert!(arena.found().is_empty());
}

///
#[test]
fn extended_headers_that_could_contradict_are_refused() {
    let long = b"a/long/name\0";
    for (tar, code) in [
        (
            Tar::new().extended(b'L', long).extended(b'L', b"other\0"),
            "two_extensions",
        ),
        (
            Tar::new().extended(b'K', long).extended(b'K', b"other\0"),
            "two_extensions",
        ),
        (
            Tar::new()
                .extended(b'L', long)
                .extended(b'K', long)
                .extended(b'L', long),
            "two_extensions",
        ),
        (
            Tar::new().pax(&[("path", b"p")]).extended(b'L', long),
            "two_extensions",
        ),
        (
            Tar::new().extended(b'L', long).pax(&[("path", b"p")]),
            "two_extensions",
        ),
        (
            Tar::new().extended(b'K', long).pax(&[("linkpath", b"p")]),
            "two_extensions",
        ),
        (
            Tar::new().pax(&[("path", b"p")]).pax(&[("path", b"q")]),
            "two_extensions",
        ),
        (Tar::new().extended(b'L', b"a\0b\0"), "long_name_nul"),
        (Tar::new().extended(b'L', b"a\0\0"), "long_name_nul"),
        (Tar::new().extended(b'L', b""), "path_empty"),
        (Tar::new().extended(b'L', b"\0"), "path_empty"),
        (Tar::new().extended(b'L', b"../x\0"), "path_parent"),
    ] {
        let arena = Arena::new();
        refused_in(&arena, &tar.file("f", b"x").gz(), code);
        assert!(arena.found().is_empty());
    }
}

/// the size in a pax header is that of the entry, never that of an extended header in between.
#[test]
fn a_pax_size_does_not_apply_to_another_extended_header() {
    let mut data = b"name\0".to_vec();
    data.resize(512, 0);
    let smuggled = Tar::new()
        .pax(&[("size", b"1024")])
        .raw(&header(b'L', b"././@LongLink", 5))
        .raw(&data)
        .file("hidden", b"x")
        .file("f", b"x");
    let arena = Arena::new();
    refused_in(&arena, &smuggled.gz(), "two_extensions");
    assert!(arena.found().is_empty());
    let global = Tar::new()
        .extended(b'g', &record("size", b"1024"))
        .file("f", b"x");
    refused(&global.gz(), "global_override");
}

/// long names and long links of GNU tar are accepted.
#[test]
fn a_gnu_long_name_and_long_link_apply_to_the_next_entry_only() {
    let name = format!("{}/{}", "d".repeat(120), "n".repeat(130));
    let target = format!("{}/x", "t".repeat(150));
    let tar = Tar::new()
        .extended(b'K', format!("{target}\0").as_bytes())
        .extended(b'L', format!("{name}\0").as_bytes())
        .symlink("short", "short")
        .file("next", b"x");
    let (arena, unpacked) = kept(&tar.gz());
    assert_eq!(unpacked.entries, 3);
    assert_eq!(arena.read("next"), b"x");
    let link = std::fs::read_link(arena.target().join(&name)).expect("a link");
    assert_eq!(link.to_str(), Some(target.as_str()));
}

///
#[test]
fn malformed_pax_records_are_refused() {
    for (data, code) in [
        (&b"99 path=x\n"[..], "pax_length"),
        (b"3 path=x\n", "pax_newline"),
        (b"path=x\n", "pax_length"),
        (b"9 path=xy", "pax_newline"),
        (b"8 pathx\n", "pax_key"),
        (b"8 path=\n", "pax_empty_value"),
        (b"9 path=\0\n", "pax_nul"),
        (b"9 path=a\n9 path=b\n", "pax_twice"),
        (b"9 path=a\n\0", "pax_length"),
    ] {
        refused(&Tar::new().extended(b'x', data).file("f", b"x").gz(), code);
    }
}

///
#[test]
fn an_extended_header_that_announces_gibibytes_is_refused_by_its_size() {
    for type_flag in *b"xgLK" {
        for size in [
            b"77777777777\0",
            b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
            b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            let tar = Tar::new().with(type_flag, b"x", 0, |block| {
                block[124..136].copy_from_slice(size)
            });
            refused(&tar.file("f", b"x").gz(), "extension_too_long");
        }
    }
    let tar = Tar::new().extended(b'L', &[b'n'; 4097]).file("f", b"x");
    refused(&tar.gz(), "extension_too_long");
}

///
#[test]
fn sizes_that_are_no_numbers_or_too_large_are_refused() {
    for (size, code) in [
        (
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            "header_number",
        ),
        (
            b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            "header_number",
        ),
        (b"-0000000001\0", "header_number"),
        (b"9999999999\0\0", "header_number"),
        (b"0x0000000010", "header_number"),
        (b"1\x000000000000", "header_number"),
        (b"77777777777\0", "unpacked_bytes_limit"),
        (
            b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
            "unpacked_bytes_limit",
        ),
        (
            b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xfe\0",
            "unpacked_bytes_limit",
        ),
    ] {
        let tar = Tar::new().with(b'0', b"f", 0, |block| block[124..136].copy_from_slice(size));
        let arena = Arena::new();
        refused_in(&arena, &tar.gz(), code);
        assert!(arena.found().is_empty());
    }
    for (type_flag, name) in [(b'5', "d/"), (b'2', "l"), (b'1', "h")] {
        let tar = Tar::new()
            .file("f", b"")
            .with(type_flag, name.as_bytes(), 512, |block| block[157] = b'f');
        refused(
            &tar.data(&header(b'0', b"hidden", 0)).gz(),
            "data_without_file",
        );
    }
}

///
#[test]
fn a_pax_header_that_refers_to_itself_comes_to_an_end() {
    let tar = Tar::new()
        .with(b'x', b"x", 0, |_| ())
        .with(b'x', b"x", 0, |_| ());
    refused(&tar.gz(), "two_extensions");
    let tar = Tar::new().extended(b'x', b"0 path=x\n").file("f", b"x");
    refused(&tar.gz(), "pax_length");
    for type_flag in *b"xLK" {
        let tar = Tar::new()
            .file("f", b"x")
            .extended(type_flag, &record("comment", b"last"));
        refused(&tar.gz(), "extension_without_entry");
    }
}

///
#[test]
fn a_global_header_must_not_rename_or_resize_what_follows() {
    for (key, value) in [
        ("path", &b"../x"[..]),
        ("path", b"x"),
        ("linkpath", b"x"),
        ("size", b"0"),
    ] {
        let tar = Tar::new()
            .extended(b'g', &record(key, value))
            .file("a", b"1")
            .file("b", b"2");
        refused(&tar.gz(), "global_override");
    }
    let sparse = Tar::new()
        .extended(b'g', &record("GNU.sparse.major", b"1"))
        .file("a", b"1");
    refused(&sparse.gz(), "sparse_file");
    let comment = [record("comment", b"5d1f"), record("mtime", b"1")].concat();
    let tar = Tar::new()
        .extended(b'g', &comment)
        .file("a", b"1")
        .extended(b'g', &comment);
    let (arena, _) = kept(&tar.gz());
    assert_eq!(arena.found(), ["a"]);
}

///
#[test]
fn a_wrong_checksum_is_refused() {
    let mut block = header(b'0', b"second", 0);
    block[0] = b'S';
    let error = refused(
        &Tar::new().file("first", b"1").raw(&block).gz(),
        "header_checksum",
    );
    assert!(
        error
            .to_string()
            .starts_with("entry 2, `Second`: its header's checksum is "),
        "{error}"
    );
    refused(&Tar::new().raw(&block).gz(), "header_checksum");
    // Summed as signed bytes, as some old programs did: one checksum with one meaning.
    let mut signed = header(b'0', b"\xff\xfe", 0);
    signed[148..156].fill(b' ');
    let sum: i32 = signed
        .iter()
        .map(|byte| i32::from(byte.cast_signed()))
        .sum();
    signed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    refused(
        &Tar::new().file("first", b"").raw(&signed).gz(),
        "header_checksum",
    );
}

/// swapped bytes keep the checksum; the result must still be harmless.
#[test]
fn a_header_with_swapped_bytes_has_the_same_checksum_and_gains_nothing() {
    let mut block = header(b'0', b"x/..", 0);
    block[..4].copy_from_slice(b"../x");
    refused(&Tar::new().raw(&block).gz(), "path_parent");
}

///
#[test]
fn old_and_odd_magics_are_read_by_their_own_rules() {
    let with_magic = |magic: &'static [u8; 8], type_flag, name: &[u8]| {
        Tar::new()
            .with(type_flag, name, 0, |block| {
                block[257..265].copy_from_slice(magic)
            })
            .gz()
    };
    for magic in [b"\0\0\0\0\0\0\0\0", b"ustar  \0", b"ustar\0\0\0"] {
        let (arena, _) = kept(&with_magic(magic, b'0', b"f"));
        assert_eq!(arena.found(), ["f"]);
        kept(&with_magic(magic, 0, b"f"));
    }
    let (arena, _) = kept(&with_magic(b"\0\0\0\0\0\0\0\0", 0, b"d/"));
    assert!(arena.target().join("d").is_dir());
    refused(
        &with_magic(b"ustar\x0000", 0, b"d/"),
        "path_slash_after_name",
    );
    refused(&with_magic(b"USTAR\x0000", b'0', b"f"), "not_tar");
    refused(&with_magic(b"ustar\x0099", b'0', b"f"), "header_magic");
    // GNU headers have times where POSIX headers have a prefix.
    let gnu = Tar::new().with(b'0', b"f", 0, |block| {
        block[257..265].copy_from_slice(b"ustar  \0");
        block[345..357].copy_from_slice(b"14777777777\0");
    });
    assert_eq!(kept(&gnu.gz()).0.found(), ["f"]);
    let mut star = header(b'0', b"f", 0);
    star[508..512].copy_from_slice(b"tar\0");
    seal(&mut star);
    refused(&Tar::new().raw(&star).gz(), "header_star");
}

//! Hostile archives as data, each with its row and the expected result.

use support::tar::{Block, Tar, gzip, header, record, seal};

/// The expected result of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Refused with this code before anything runs.
    Refused(&'static str),
    /// Unpacked, and nothing in it leads the body elsewhere.
    Contained,
}

use Verdict::{Contained, Refused};

/// One archive.
pub(crate) struct Hostile {
    pub(crate) row: &'static str,
    pub(crate) archive: Vec<u8>,
    /// A host policy for the run, with limits that a small archive exceeds.
    pub(crate) policy: Option<&'static str>,
    pub(crate) verdict: Verdict,
}

/// Prints what is wrong with the bundle, or what cannot be checked, then that the rest is right. A
/// label counts only if it is that of the archive.
const BODY: &str = include_str!("../bodies/archives/corpus_body.sh");

/// The start of a bundle that runs.
fn base() -> Tar {
    Tar::new()
        .file("manifest.yaml", b"run: body.sh\n")
        .file("body.sh", BODY.as_bytes())
}

/// All archives. `canary` is a directory of the host that must not change.
pub(crate) fn all(canary: &str) -> Vec<Hostile> {
    let mut corpus = Vec::new();
    let groups = [
        names(canary),
        odd_names(),
        links(canary),
        more_links(),
        hard_links(canary),
        types(),
        harmless_attributes(),
        sizes(),
        extended_headers(),
        too_long(),
        collisions(),
        places_of_ours(),
    ];
    for (row, tar, verdict) in groups.into_iter().flatten() {
        corpus.push(hostile(row, tar.gz(), verdict));
    }
    for (row, archive, verdict) in streams()
        .into_iter()
        .chain(members())
        .chain(other_formats())
    {
        corpus.push(hostile(row, archive, verdict));
    }
    corpus.extend(bombs());
    corpus
}

fn hostile(row: &'static str, archive: Vec<u8>, verdict: Verdict) -> Hostile {
    Hostile {
        row,
        archive,
        policy: None,
        verdict,
    }
}

type Entries = Vec<(&'static str, Tar, Verdict)>;

fn with_mode(mode: &'static [u8; 7]) -> impl Fn(&mut Block) {
    move |block| block[100..107].copy_from_slice(mode)
}

fn names(canary: &str) -> Entries {
    let file = |name: &str| base().pax_file(name.as_bytes(), b"x");
    let mut entries = vec![
        ("A-01", base().directory(".."), Refused("path_parent")),
        ("A-01", base().symlink("../x", "y"), Refused("path_parent")),
        (
            "A-02",
            base().directory("a/").file("a/../../x", b"x"),
            Refused("path_parent"),
        ),
        (
            "A-04",
            file(&format!("{canary}/new")),
            Refused("path_absolute"),
        ),
        (
            "A-04",
            file(&format!("{canary}/file")),
            Refused("path_absolute"),
        ),
    ];
    for (row, name, code) in [
        ("A-01", "../x", "path_parent"),
        ("A-01", "../../../../tmp/x", "path_parent"),
        ("A-02", "a/../../x", "path_parent"),
        ("A-03", "a/b/../../c", "path_parent"),
        ("A-04", "/tmp/x", "path_absolute"),
        ("A-05", "//tmp/x", "path_absolute"),
        ("A-05", "///x", "path_absolute"),
        ("A-05", "/./x", "path_absolute"),
        ("A-05", "./../x", "path_parent"),
    ] {
        entries.push((row, base().file(name, b"x"), Refused(code)));
    }
    for name in ["C:\\x", "..\\x", "\\\\host\\x"] {
        entries.push(("A-06", base().file(name, b"x"), Contained));
    }
    entries
}

fn odd_names() -> Entries {
    let all_bits = with_mode(b"0007777");
    let prefix = |prefix: &'static [u8], name: &[u8]| {
        base().with(b'0', name, 0, |block| {
            block[345..345 + prefix.len()].copy_from_slice(prefix)
        })
    };
    let at_100 = format!("{}/..", "n".repeat(97));
    vec![
        ("A-40", base().with(b'5', b"./", 0, &all_bits), Contained),
        ("A-40", base().with(b'5', b".", 0, &all_bits), Contained),
        ("A-40", base().file("", b"x"), Refused("path_empty")),
        ("A-40", base().directory("/"), Refused("path_absolute")),
        ("A-40", base().symlink(".", "a"), Refused("path_root")),
        ("A-53", base().raw(&header(b'0', b"\xff\xfe", 0)), Contained),
        ("A-53", base().file("new\nline", b"x"), Contained),
        ("A-53", base().file("\x1b[31mred\u{202e}", b"x"), Contained),
        (
            "A-53",
            base()
                .file("\x1b[31m\nred\u{202e}", b"x")
                .directory("\x1b[31m\nred\u{202e}/"),
            Refused("entry_other_type"),
        ),
        (
            "A-53",
            base().symlink("\x1b]0;title\x07", "/\x1b[2J"),
            Refused("symlink_absolute"),
        ),
        (
            "A-54",
            base().raw(&header(b'0', b"a\0/../../x", 0)),
            Refused("header_nul_in_name"),
        ),
        ("A-54", base().pax_file(b"a\0b", b"x"), Refused("pax_nul")),
        ("A-54", prefix(b"a/..", b"../x"), Refused("path_parent")),
        ("A-54", prefix(b"..", b"x"), Refused("path_parent")),
        ("A-54", base().file(&at_100, b"x"), Refused("path_parent")),
    ]
}

fn links(canary: &str) -> Entries {
    let open = with_mode(b"0000777");
    vec![
        (
            "A-07",
            base().symlink("l", canary).file("l/x", b"x"),
            Refused("symlink_absolute"),
        ),
        (
            "A-07",
            base().symlink("l", "../../tmp").file("l/x", b"x"),
            Refused("symlink_escapes"),
        ),
        (
            "A-07",
            base().directory("d/").symlink("l", "d").file("l/x", b"x"),
            Refused("entry_through_link"),
        ),
        (
            "A-08",
            base()
                .symlink("cur", ".")
                .symlink("par", "cur/..")
                .file("par/x", b"x"),
            Refused("entry_through_link"),
        ),
        (
            "A-08",
            base().symlink("cur", ".").symlink("par", "cur/.."),
            Refused("symlink_through_link"),
        ),
        (
            "A-09",
            base()
                .link(b'2', "f", &format!("{canary}/file"))
                .file("f", b"overwritten"),
            Refused("symlink_absolute"),
        ),
        (
            "A-09",
            base().symlink("f", "g").file("f", b"overwritten"),
            Refused("entry_other_type"),
        ),
        (
            "A-10",
            base().directory("d/").symlink("d", "/").file("d/x", b"x"),
            Refused("symlink_absolute"),
        ),
        (
            "A-10",
            base()
                .directory("d/")
                .directory("e/")
                .symlink("d", "e")
                .file("d/x", b"x"),
            Refused("entry_other_type"),
        ),
        (
            "A-11",
            base()
                .symlink("d", &format!("{canary}/deep"))
                .with(b'5', b"d/", 0, &open),
            Refused("symlink_absolute"),
        ),
        (
            "A-11",
            base()
                .directory("real/")
                .symlink("d", "real")
                .with(b'5', b"d/", 0, &open),
            Refused("entry_other_type"),
        ),
        (
            "A-21",
            base().symlink("l", &format!("{canary}/file")),
            Refused("symlink_absolute"),
        ),
        (
            "A-21",
            base().symlink("l", "/proc/self/environ"),
            Refused("symlink_absolute"),
        ),
        (
            "A-21",
            base().symlink("d/l", "../../bundle"),
            Refused("symlink_escapes"),
        ),
    ]
}

fn more_links() -> Entries {
    let chain = (0..41).fold(base(), |tar, step| {
        tar.symlink(&format!("l{step}"), &format!("l{}", step + 1))
    });
    let deep = base().directory("a/b/c/").symlink("a/b/c/l", "../../../..");
    vec![
        (
            "A-12",
            deep.file("a/b/c/l/x", b"x"),
            Refused("symlink_escapes"),
        ),
        ("A-12", base().symlink("a/b/c/l", "../../.."), Contained),
        ("A-13", longer_than_a_path(), Refused("entry_through_link")),
        (
            "A-14",
            base()
                .symlink("a/sub", "..")
                .symlink("l", "a/sub/../canary"),
            Refused("symlink_through_link"),
        ),
        (
            "A-14",
            base()
                .symlink("d/deep/up", "../..")
                .symlink("m", "d/deep/up/../.."),
            Refused("symlink_through_link"),
        ),
        ("A-22", base().symlink("l", ""), Refused("symlink_empty")),
        ("A-22", base().symlink("", "x"), Refused("path_empty")),
        (
            "A-22",
            base().symlink("l/", "x"),
            Refused("path_slash_after_name"),
        ),
        ("A-23", base().symlink("a", "a"), Refused("symlink_loop")),
        (
            "A-23",
            base().symlink("a", "b").symlink("b", "a"),
            Refused("symlink_chained"),
        ),
        ("A-23", chain.file("l41", b"x"), Refused("symlink_chained")),
    ]
}

/// Sixteen links in one path, whose real path is longer than PATH_MAX.
fn longer_than_a_path() -> Tar {
    let long = "d".repeat(247);
    let mut tar = base();
    let mut path = String::new();
    for step in "abcdefghijklmnop".chars() {
        let (directory, link) = (format!("{path}{long}"), format!("{path}{step}"));
        tar = tar
            .pax(&[("path", directory.as_bytes())])
            .directory("d/")
            .pax(&[("path", link.as_bytes()), ("linkpath", long.as_bytes())])
            .symlink("l", "t");
        path = format!("{path}{step}/");
    }
    let escape = format!("a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/{}", "../".repeat(17));
    tar.symlink("escape", &escape).file("escape/x", b"x")
}

fn hard_links(canary: &str) -> Entries {
    let file = format!("{canary}/file");
    let escape = base()
        .file("a/t/dummy", b"")
        .symlink("b", "../canary")
        .symlink("c", "a/t");
    let with_data = base()
        .file("f", b"before")
        .with(b'1', b"h", 5, |block| block[157] = b'f');
    vec![
        (
            "A-15",
            base().hard_link("h", "/etc/passwd"),
            Refused("hard_link_path"),
        ),
        (
            "A-15",
            base().link(b'1', "h", &file).file("h", b"x"),
            Refused("hard_link_path"),
        ),
        (
            "A-16",
            base().hard_link("h", "../../canary"),
            Refused("hard_link_path"),
        ),
        (
            "A-16",
            base().hard_link("h", "a/../../x").file("h", b"x"),
            Refused("hard_link_path"),
        ),
        (
            "A-17",
            base().symlink("l", "x").hard_link("h", "l").file("h", b"x"),
            Refused("hard_link_not_file"),
        ),
        (
            "A-18",
            escape.symlink("c", "b").hard_link("c/escape", "c/escape"),
            Refused("symlink_escapes"),
        ),
        (
            "A-18",
            base()
                .file("a/t/x", b"")
                .file("d/x", b"")
                .symlink("c", "a/t")
                .symlink("c", "d")
                .hard_link("h", "c/x"),
            Refused("hard_link_missing"),
        ),
        (
            "A-19",
            base().hard_link("h", "f").file("f", b"1"),
            Refused("hard_link_missing"),
        ),
        (
            "A-19",
            base().hard_link("h", "h"),
            Refused("hard_link_itself"),
        ),
        (
            "A-19",
            base().directory("d/").hard_link("h", "d"),
            Refused("hard_link_not_file"),
        ),
        (
            "A-19",
            base().file("f", b"1").hard_link("h", "f"),
            Contained,
        ),
        (
            "A-20",
            with_data.data(b"after"),
            Refused("data_without_file"),
        ),
    ]
}

fn types() -> Entries {
    let device = |kind, major: &'static [u8; 8], minor: &'static [u8; 8]| {
        base().with(kind, b"dev", 0, |block| {
            block[329..337].copy_from_slice(major);
            block[337..345].copy_from_slice(minor);
        })
    };
    let mut entries = vec![
        (
            "A-24",
            device(b'3', b"0000001\0", b"0000003\0"),
            Refused("entry_type"),
        ),
        (
            "A-24",
            device(b'3', b"0000001\0", b"0000001\0"),
            Refused("entry_type"),
        ),
        (
            "A-24",
            device(b'4', b"0000376\0", b"0000000\0"),
            Refused("entry_type"),
        ),
        (
            "A-25",
            base().with(b'6', b"f", 0, |_| ()),
            Refused("entry_type"),
        ),
        (
            "A-25",
            Tar::new().with(b'6', b"manifest.yaml", 0, |_| ()),
            Refused("entry_type"),
        ),
    ];
    for kind in *b"sZDMV7" {
        entries.push((
            "A-26",
            base().with(kind, b"f", 0, |_| ()),
            Refused("entry_type"),
        ));
    }
    entries
}

fn harmless_attributes() -> Entries {
    let capability = b"\x01\0\0\x02\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let attributes = base()
        .pax(&[
            ("SCHILY.xattr.security.capability", capability),
            ("SCHILY.xattr.user.test", b"x"),
            ("LIBARCHIVE.xattr.user.test", b"eA"),
            ("SCHILY.xattr.security.selinux", b"u:r:t:s0"),
            ("SCHILY.acl.access", b"user::rwx,group::rwx,other::rwx"),
        ])
        .file("f", b"x");
    let none = with_mode(b"0000000");
    let mut entries = vec![
        (
            "A-27",
            base().with(b'0', b"f", 0, with_mode(b"0007777")),
            Contained,
        ),
        (
            "A-27",
            base().with(b'0', b"f", 0, with_mode(b"0004755")),
            Contained,
        ),
        (
            "A-27",
            base().with(b'5', b"d/", 0, with_mode(b"0007777")),
            Contained,
        ),
        ("A-28", attributes, Contained),
        (
            "A-55",
            base()
                .with(b'5', b"d/", 0, &none)
                .with(b'0', b"d/f", 0, &none)
                .file("d/g", b"x"),
            Contained,
        ),
        (
            "A-56",
            (0..50).fold(
                base().with(b'5', b"d/", 0, with_mode(b"0000555")),
                |tar, number| tar.file(&format!("d/{number}"), b"x"),
            ),
            Contained,
        ),
    ];
    for field in [
        b"0000000\0",
        b"\x80\0\0\0\x80\0\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xfe",
        b"\x80\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let owner = |block: &mut Block| {
            block[108..116].copy_from_slice(field);
            block[116..124].copy_from_slice(field);
        };
        entries.push(("A-29", base().with(b'0', b"f", 0, owner), Contained));
    }
    for time in [&b"NaN"[..], b"-1", b"9223372036854775808"] {
        entries.push((
            "A-30",
            base().pax(&[("mtime", time)]).file("f", b"x"),
            Contained,
        ));
    }
    entries
}

fn sizes() -> Entries {
    let size = |field: &'static [u8; 12]| {
        base().with(b'0', b"f", 0, |block| {
            block[124..136].copy_from_slice(field)
        })
    };
    let gnu_sparse = base().with(b'S', b"f", 0, |block| {
        block[257..265].copy_from_slice(b"ustar  \0");
        block[483..495].copy_from_slice(b"\x80\0\0\0\0\0\x01\0\0\0\0\0");
    });
    let map = |text: &str| {
        base()
            .pax(&[("GNU.sparse.map", text.as_bytes())])
            .file("f", b"x")
    };
    let real_size: [(&str, &[u8]); 2] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.realsize", b"1099511627776"),
    ];
    let hidden = [&header(b'0', b"hidden", 0)[..], &[0; 512]].concat();
    let two_sizes = |in_header, in_pax: &[u8]| {
        let tar = base()
            .pax(&[("size", in_pax)])
            .raw(&header(b'0', b"outer", in_header));
        tar.raw(&hidden)
    };
    vec![
        ("A-31", gnu_sparse, Refused("entry_type")),
        (
            "A-31",
            base().pax(&real_size).file("f", b"0\n"),
            Refused("sparse_file"),
        ),
        ("A-32", map(&"0,1,".repeat(200_000)), Refused("sparse_file")),
        (
            "A-32",
            map(&"0,1,".repeat(300_000)),
            Refused("extension_too_long"),
        ),
        ("A-32", map("0,10,5,10,-1,3"), Refused("sparse_file")),
        ("A-33", two_sizes(0, b"1024"), Refused("two_sizes")),
        ("A-33", two_sizes(1024, b"0"), Refused("two_sizes")),
        ("A-33", two_sizes(1024, b"1024"), Contained),
        (
            "A-37",
            size(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            Refused("header_number"),
        ),
        (
            "A-37",
            size(b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            Refused("header_number"),
        ),
        ("A-37", size(b"-0000000001\0"), Refused("header_number")),
        ("A-37", size(b"0x0000000010"), Refused("header_number")),
        (
            "A-37",
            size(b"77777777777\0"),
            Refused("unpacked_bytes_limit"),
        ),
        (
            "A-44",
            size(b"\x80\0\0\0\0\0\0\x02\x80\0\0\0"),
            Refused("unpacked_bytes_limit"),
        ),
    ]
}

fn extended_headers() -> Entries {
    let long = b"a/long/name\0";
    let mut smuggler = b"name\0".to_vec();
    smuggler.resize(512, 0);
    let smuggled = base()
        .pax(&[("size", b"1024")])
        .raw(&header(b'L', b"././@LongLink", 5))
        .raw(&smuggler);
    let announcing = |kind, size: &'static [u8; 12]| {
        let tar = base().with(kind, b"x", 0, |block| block[124..136].copy_from_slice(size));
        tar.file("f", b"x")
    };
    let itself = base()
        .with(b'x', b"x", 0, |_| ())
        .with(b'x', b"x", 0, |_| ());
    let mut entries = vec![
        (
            "A-34",
            smuggled.file("hidden", b"x"),
            Refused("two_extensions"),
        ),
        (
            "A-34",
            base()
                .pax(&[("path", b"p")])
                .extended(b'L', long)
                .file("f", b"x"),
            Refused("two_extensions"),
        ),
        (
            "A-34",
            base()
                .extended(b'L', long)
                .extended(b'L', long)
                .file("f", b"x"),
            Refused("two_extensions"),
        ),
        (
            "A-34",
            base().extended(b'L', b"a\0b\0").file("f", b"x"),
            Refused("long_name_nul"),
        ),
        (
            "A-36",
            announcing(b'x', b"77777777777\0"),
            Refused("extension_too_long"),
        ),
        (
            "A-36",
            announcing(b'L', b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"),
            Refused("extension_too_long"),
        ),
        (
            "A-36",
            announcing(b'K', b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
            Refused("extension_too_long"),
        ),
        ("A-38", itself, Refused("two_extensions")),
    ];
    for (data, code) in [
        (&b"99 path=x\n"[..], "pax_length"),
        (b"9 path=xy", "pax_newline"),
        (b"8 pathx\n", "pax_key"),
        (b"8 path=\n", "pax_empty_value"),
        (b"9 path=\0\n", "pax_nul"),
    ] {
        entries.push((
            "A-35",
            base().extended(b'x', data).file("f", b"x"),
            Refused(code),
        ));
    }
    let loops = base().extended(b'x', b"0 path=x\n").file("f", b"x");
    entries.push(("A-38", loops, Refused("pax_length")));
    for (key, value) in [
        ("path", &b"../x"[..]),
        ("linkpath", b"/etc"),
        ("size", b"0"),
    ] {
        let tar = base().extended(b'g', &record(key, value)).file("f", b"x");
        entries.push(("A-39", tar, Refused("global_override")));
    }
    entries
}

fn too_long() -> Entries {
    let named = |name: String| base().pax_file(name.as_bytes(), b"x");
    let levels = |count: usize| vec!["d"; count].join("/");
    let path = vec!["n".repeat(255); 16].join("/") + "/n";
    vec![
        (
            "A-41",
            named("a/".repeat(222_372) + "x"),
            Refused("path_too_long"),
        ),
        ("A-42", named(path), Refused("path_too_long")),
        (
            "A-42",
            named("n".repeat(256)),
            Refused("path_segment_too_long"),
        ),
        ("A-42", named(levels(129)), Refused("path_too_deep")),
        ("A-42", named(levels(128)), Contained),
    ]
}

fn collisions() -> Entries {
    let twins = ["A", "a", "\u{e9}", "e\u{301}", "ss", "\u{df}"];
    let mut changed = header(b'0', b"second", 0);
    changed[0] = b'S';
    let mut swapped = header(b'0', b"x/..", 0);
    swapped[..4].copy_from_slice(b"../x");
    let mut star = header(b'0', b"f", 0);
    star[508..512].copy_from_slice(b"tar\0");
    seal(&mut star);
    let old = base().with(0, b"d/", 0, |block| block[257..265].fill(0));
    vec![
        ("A-51", base().file("f", b"1").file("f", b"2"), Contained),
        (
            "A-51",
            base().file("x", b"1").directory("x/"),
            Refused("entry_other_type"),
        ),
        (
            "A-51",
            base().directory("x/").file("x", b"1"),
            Refused("entry_other_type"),
        ),
        (
            "A-51",
            base().file("x", b"1").file("x/y", b"2"),
            Refused("bundle_path_conflict"),
        ),
        (
            "A-52",
            twins.iter().fold(base(), |tar, name| tar.file(name, b"x")),
            Contained,
        ),
        ("A-57", base().raw(&changed), Refused("header_checksum")),
        ("A-57", base().raw(&swapped), Refused("path_parent")),
        ("A-57", base().raw(&star), Refused("header_star")),
        ("A-57", old, Contained),
    ]
}

fn places_of_ours() -> Entries {
    let named_alike = [
        "runner/input.json",
        "dev/null",
        "proc/self",
        "etc/resolv.conf",
        ".runner-ok",
    ];
    vec![
        (
            "A-58",
            named_alike
                .iter()
                .fold(base(), |tar, name| tar.file(name, b"x")),
            Contained,
        ),
        (
            "A-58",
            base().symlink("scratch", "runner").symlink("proc", "dev"),
            Contained,
        ),
        (
            "A-58",
            base().symlink("runner", "/runner/input.json"),
            Refused("symlink_absolute"),
        ),
        (
            "A-58",
            base().symlink(".runner/manifest.json", "../../x"),
            Refused("symlink_escapes"),
        ),
        (
            "A-58",
            base().file("../runner/input.json", b"x"),
            Refused("path_parent"),
        ),
    ]
}

type Streams = Vec<(&'static str, Vec<u8>, Verdict)>;

fn streams() -> Streams {
    let tar = base().end();
    let whole = base().gz();
    let changed = |from_end: usize| {
        let mut bytes = whole.clone();
        let at = bytes.len() - from_end;
        bytes[at] ^= 1;
        bytes
    };
    vec![
        ("A-45", gzip(&whole), Refused("not_tar")),
        (
            "A-46",
            whole[..whole.len() / 2].to_vec(),
            Refused("gzip_truncated"),
        ),
        (
            "A-46",
            whole[..whole.len() - 1].to_vec(),
            Refused("gzip_truncated"),
        ),
        ("A-46", changed(8), Refused("gzip_malformed")),
        ("A-46", changed(1), Refused("gzip_malformed")),
        ("A-46", gzip(&base().0), Refused("tar_end_missing")),
        ("A-46", gzip(&tar[..1600]), Refused("tar_truncated")),
        (
            "A-47",
            [&whole[..], b"garbage"].concat(),
            Refused("gzip_trailing_bytes"),
        ),
        (
            "A-47",
            gzip(&[tar.clone(), Tar::new().file("second", b"x").end()].concat()),
            Refused("tar_data_after_end"),
        ),
    ]
}

fn members() -> Streams {
    let tar = base().end();
    let whole = base().gz();
    let climbs = gzip(&Tar::new().file("../x", b"x").end());
    let named = [
        &[0x1f, 0x8b, 8, 0x1c, 0, 0, 0, 0, 0, 3, 0xff, 0xff][..],
        &[b'x'; 0xffff],
    ]
    .concat();
    let named = [&named[..], b"../../x\0/etc/comment\0", &whole[10..]].concat();
    let endless = [
        &[0x1f, 0x8b, 8, 0x10, 0, 0, 0, 0, 0, 3][..],
        &[b'c'; 100_000],
    ]
    .concat();
    vec![
        (
            "A-48",
            [gzip(&tar[..700]), gzip(b""), gzip(&tar[700..])].concat(),
            Contained,
        ),
        (
            "A-48",
            [gzip(&base().0), climbs.clone()].concat(),
            Refused("path_parent"),
        ),
        (
            "A-48",
            [whole, climbs].concat(),
            Refused("tar_data_after_end"),
        ),
        ("A-49", named, Contained),
        ("A-49", endless, Refused("gzip_malformed")),
    ]
}

fn other_formats() -> Streams {
    let plain = base().end();
    [
        &plain[..],
        b"PK\x03\x04x",
        b"\xfd7zXZ\0x",
        b"\x28\xb5\x2f\xfdx",
        b"BZh91AY&SY",
        b"",
        b"x",
    ]
    .iter()
    .map(|bytes| ("A-50", bytes.to_vec(), Refused("not_gzip")))
    .collect()
}

fn bombs() -> Vec<Hostile> {
    let zeros = vec![0; 4 << 20];
    let files = (0..400).fold(base(), |tar, number| tar.file(&format!("f{number}"), b""));
    let directories = (0..400).fold(base(), |tar, number| tar.directory(&format!("d{number}/")));
    let copies = (0..64).fold(base().file("f", &zeros[..1 << 15]), |tar, number| {
        tar.hard_link(&format!("h{number}"), "f")
    });
    let many = "unpack: {entries: 300}\n";
    let much = "unpack: {unpacked: 1m}\n";
    [
        ("A-43", files, many, "entries_limit"),
        ("A-43", directories, many, "entries_limit"),
        (
            "A-44",
            base().file("zeros", &zeros),
            much,
            "unpacked_bytes_limit",
        ),
        ("A-44", copies, much, "unpacked_bytes_limit"),
    ]
    .into_iter()
    .map(|(row, tar, policy, code)| Hostile {
        policy: Some(policy),
        ..hostile(row, tar.gz(), Refused(code))
    })
    .collect()
}

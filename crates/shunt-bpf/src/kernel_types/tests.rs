use super::*;

/// The BTF of the running kernel; None if it has none.
fn of_kernel() -> Option<Vec<PathBuf>> {
    let path = PathBuf::from("/sys/kernel/btf/vmlinux");
    if path.exists() {
        return Some(vec![path]);
    }
    eprintln!("SKIP: the kernel has no BTF");
    None
}

/// A file with these contents, until it is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, contents: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("shunt-types-{}-{name}", std::process::id()));
        fs::write(&path, contents).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_types_that_programs_read_are_few_and_at_the_kernels_offsets() {
    let (Some(kernel), Ok(running)) = (of_kernel(), BuildId::of_running_kernel()) else { return };
    let reduced = reduce(&kernel, &running).unwrap();
    assert!((500..4000).contains(&reduced.len()), "{} bytes", reduced.len());
    let file = Temporary::new("whole", &reduced);
    let [few, all] = [&file.0, &kernel[0]].map(|path| parse(path).unwrap());
    let size = |btf: &Btf<'_>, name: &str| {
        use libbpf_rs::btf::{HasSize, types::Struct};
        btf.type_by_kind::<Struct<'_>>().find(|s| s.name().is_some_and(|n| n == name)).map(|s| s.size())
    };
    for name in ["sk_buff", "nf_conn", "nf_conntrack_tuple_hash"] {
        assert!(size(&few, name).is_some() && size(&few, name) == size(&all, name), "{name}");
    }
    assert_eq!(size(&few, "task_struct"), None);
    assert_eq!(KernelTypes::open(&file.0).unwrap().path(), file.0);
}

#[test]
fn a_file_that_is_not_for_the_running_kernel_is_refused() {
    let Some(kernel) = of_kernel() else { return };
    let refusal = |name: &str, contents: &[u8]| {
        let file = Temporary::new(name, contents);
        let refused = KernelTypes::open(&file.0).unwrap_err().to_string();
        refused.replace(&file.0.display().to_string(), "FILE")
    };
    let other: BuildId = "00112233445566778899aabbccddeeff00112233".parse().unwrap();
    let reduced = reduce(&kernel, &other).unwrap();
    let refused = refusal("other", &reduced);
    assert!(
        refused.starts_with(&format!("FILE: it is for the kernel with build ID {other}, and ")),
        "{refused}"
    );
    assert!(refusal("text", b"no BTF").starts_with("FILE: "));
    assert!(refusal("short", &reduced[..reduced.len() / 2]).starts_with("FILE: "));
    assert!(refusal("empty", b"").starts_with("FILE: "));
    let absent = KernelTypes::open(Path::new("/nonexistent.btf")).unwrap_err().to_string();
    assert!(absent.starts_with("/nonexistent.btf: ") && absent.contains("No such file"), "{absent}");
    // The kernel's own BTF does not say which kernel it is for.
    let unmarked = KernelTypes::open(&kernel[0]).unwrap_err().to_string();
    assert!(unmarked.contains("does not say which kernel"), "{unmarked}");
}

#[test]
fn a_type_that_no_file_has_is_named() {
    let Some(kernel) = of_kernel() else { return };
    let other: BuildId = "00112233445566778899aabbccddeeff00112233".parse().unwrap();
    let mut writer = writer::Writer::new().unwrap();
    writer.declaration("nothing").unwrap();
    let file = Temporary::new("lacking", &writer.bytes().unwrap());
    let lacks = reduce(std::slice::from_ref(&file.0), &other).unwrap_err().to_string();
    assert!(lacks.contains("no file has struct ") && lacks.contains("nf_conntrack"), "{lacks}");
    // What one file lacks is taken from the next one.
    assert!(reduce(&[file.0.clone(), kernel[0].clone()], &other).is_ok());
}

/// After a change of the declarations, `cargo xtask btf` makes the files again.
#[test]
fn the_files_of_the_packages_have_all_that_programs_read() {
    use libbpf_rs::btf::types::Struct;
    let Some(kernel) = of_kernel() else { return };
    let own = reduce(&kernel, &"00112233445566778899aabbccddeeff00112233".parse().unwrap()).unwrap();
    let own = Temporary::new("own", &own);
    let members = |btf: &Btf<'_>, name: &str| -> Vec<String> {
        let found = btf.type_by_kind::<Struct<'_>>().find(|s| s.name().is_some_and(|n| n == name)).unwrap();
        let names = (0..found.len()).filter_map(|nth| found.get(nth)?.name?.to_str().map(str::to_owned));
        names.collect()
    };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/btf");
    let files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "btf"));
    let own = parse(&own.0).unwrap();
    let mut seen = 0;
    for file in files {
        let shipped = parse(&file).unwrap();
        for name in ["sk_buff", "skb_shared_info", "nf_conn"] {
            let has = members(&shipped, name);
            let mut lacks = members(&own, name);
            lacks.retain(|member| !has.contains(member));
            assert!(lacks.is_empty(), "{}: {name} lacks {lacks:?}", file.display());
        }
        assert!(named_in(&shipped).is_some_and(|id| file.ends_with(id.file_name())), "{}", file.display());
        seen += 1;
    }
    assert!(seen > 0);
}

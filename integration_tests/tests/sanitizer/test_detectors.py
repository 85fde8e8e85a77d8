# SPDX-License-Identifier: MIT
"""Every detector of the sanitizer finds a small kernel's fault, at its instruction, and not its repair."""

import ctypes
import functools
import struct

import pytest

from integration_tests.paths import DOCS
from integration_tests.tests.sanitizer.assembled import code_object
from integration_tests.virtual_gpu import HipError

ILLEGAL_ADDRESS = 700
STORE = "global_store_b32 v1, v2, s[4:5]"  # out[thread] = v2
STORE_BY_GROUP = f"s_lshl_b32 s8, ttmp9, 8\nv_add_nc_u32 v1, s8, v1\n{STORE}"  # out[64 * work-group + thread] = v2
BARRIER = "s_barrier_signal -1\ns_barrier_wait -1"
LOAD = "global_load_b32 v2, v1, s[6:7]"
SCALAR_LOADS = "s_load_b32 s9, s[6:7], 0x0\ns_load_b32 s10, s[6:7], 0x4"
OTHER_WAVE = "v_xor_b32 v3, 0x80, v1"  # the LDS offset of the other wave's thread
FIRST_WAVE = "v_readfirstlane_b32 s8, v0\ns_cmp_lt_u32 s8, 32\ns_cbranch_scc0 {label}"

# name: (fault, instruction that it is found at, faulty body, repaired body)
CASES = {
    "load_used_too_early": (
        "missing-wait",
        "v_add_nc_u32",
        f"{LOAD}\nv_add_nc_u32 v2, 1, v2\n{STORE_BY_GROUP}",
        f"{LOAD}\ns_wait_loadcnt 0x0\nv_add_nc_u32 v2, 1, v2\n{STORE_BY_GROUP}",
    ),
    "second_load_used_after_a_wait_for_the_first": (
        "missing-wait",
        "v_add_nc_u32",
        f"{LOAD}\nglobal_load_b32 v3, v1, s[6:7]\ns_wait_loadcnt 0x1\nv_add_nc_u32 v2, 1, v3\n{STORE_BY_GROUP}",
        f"{LOAD}\nglobal_load_b32 v3, v1, s[6:7]\ns_wait_loadcnt 0x1\nv_add_nc_u32 v2, 1, v2\n{STORE_BY_GROUP}",
    ),
    "register_overwritten_while_its_load_is_under_way": (
        "missing-wait",
        "v_mov_b32",
        f"{LOAD}\nv_mov_b32 v2, 7\n{STORE_BY_GROUP}",
        f"{LOAD}\ns_wait_loadcnt 0x0\nv_mov_b32 v2, 7\n{STORE_BY_GROUP}",
    ),
    "scalar_load_used_too_early": (
        "missing-wait",
        "v_mov_b32",
        f"s_load_b32 s9, s[6:7], 0x0\nv_mov_b32 v2, s9\n{STORE_BY_GROUP}",
        f"s_load_b32 s9, s[6:7], 0x0\ns_wait_kmcnt 0x0\nv_mov_b32 v2, s9\n{STORE_BY_GROUP}",
    ),
    "scalar_loads_come_back_in_any_order": (
        "missing-wait",
        "v_mov_b32",
        f"{SCALAR_LOADS}\ns_wait_kmcnt 0x1\nv_mov_b32 v2, s9\n{STORE_BY_GROUP}",
        f"{SCALAR_LOADS}\ns_wait_kmcnt 0x0\nv_mov_b32 v2, s9\n{STORE_BY_GROUP}",
    ),
    "lds_load_used_too_early": (
        "missing-wait",
        "v_add_nc_u32",
        f"ds_store_b32 v1, v0\nds_load_b32 v2, v1\nv_add_nc_u32 v2, 1, v2\n{STORE_BY_GROUP}",
        f"ds_store_b32 v1, v0\nds_load_b32 v2, v1\ns_wait_dscnt 0x0\nv_add_nc_u32 v2, 1, v2\n{STORE_BY_GROUP}",
    ),
    "vgpr_never_set": (
        "undefined-result",
        "global_store_b32",
        f"v_add_nc_u32 v2, v9, v0\n{STORE_BY_GROUP}",
        f"v_mov_b32 v9, 1\nv_add_nc_u32 v2, v9, v0\n{STORE_BY_GROUP}",
    ),
    "sgpr_never_set": (
        "undefined-result",
        "global_store_b32",
        f"v_add_nc_u32 v2, s20, v0\n{STORE_BY_GROUP}",
        f"s_mov_b32 s20, 1\nv_add_nc_u32 v2, s20, v0\n{STORE_BY_GROUP}",
    ),
    "half_of_a_vgpr_never_set": (
        "undefined-result",
        "global_store_b32",
        f"v_cvt_pk_fp8_f32 v2, 1.0, 1.0\n{STORE_BY_GROUP}",
        f"v_cvt_pk_fp8_f32 v2, 1.0, 1.0\nv_and_b32 v2, 0xffff, v2\n{STORE_BY_GROUP}",
    ),
    "lds_never_written": (
        "undefined-result",
        "global_store_b32",
        f"ds_load_b32 v2, v1\ns_wait_dscnt 0x0\n{STORE_BY_GROUP}",
        f"ds_store_b32 v1, v0\nds_load_b32 v2, v1\ns_wait_dscnt 0x0\n{STORE_BY_GROUP}",
    ),
    "scratch_never_written": (
        "undefined-result",
        "global_store_b32",
        f"scratch_load_b32 v2, off, off offset:8\ns_wait_loadcnt 0x0\n{STORE_BY_GROUP}",
        "scratch_store_b32 off, v0, off offset:8\nscratch_load_b32 v2, off, off offset:8\n"
        f"s_wait_loadcnt 0x0\n{STORE_BY_GROUP}",
    ),
    "global_memory_never_written": (
        "undefined-result",
        "global_store_b32",
        f"global_load_b32 v2, v1, s[6:7] offset:256\ns_wait_loadcnt 0x0\n{STORE_BY_GROUP}",
        f"{LOAD}\ns_wait_loadcnt 0x0\n{STORE_BY_GROUP}",
    ),
    "address_never_set": (
        "undefined-address",
        "global_load_b32",
        f"v_and_b32 v9, 4, v9\nglobal_load_b32 v2, v9, s[6:7]\ns_wait_loadcnt 0x0\n{STORE_BY_GROUP}",
        f"v_and_b32 v9, 0, v9\nglobal_load_b32 v2, v9, s[6:7]\ns_wait_loadcnt 0x0\n{STORE_BY_GROUP}",
    ),
    "branch_on_a_register_never_set": (
        "undefined-branch",
        "s_cbranch_scc1",
        f"v_mov_b32 v2, 0\ns_cmp_eq_u32 s20, 0\ns_cbranch_scc1 branch_end\n{STORE_BY_GROUP}\nbranch_end:",
        f"v_mov_b32 v2, 0\ns_cmp_eq_u32 s7, 0\ns_cbranch_scc1 branch_end_2\n{STORE_BY_GROUP}\nbranch_end_2:",
    ),
    "mode_from_a_register_never_set": (
        "undefined-mode",
        "s_setreg_b32",
        "s_setreg_b32 hwreg(HW_REG_MODE, 4, 4), s20",
        "s_movk_i32 s20, 0xf\ns_setreg_b32 hwreg(HW_REG_MODE, 4, 4), s20",
    ),
    "exec_from_a_register_never_set": (
        "undefined-exec",
        "v_cmpx_ne_u32",
        f"v_mov_b32 v2, 0\nv_cmpx_ne_u32 0, v9\n{STORE_BY_GROUP}",
        f"v_mov_b32 v2, 0\nv_cmpx_ne_u32 0, v0\n{STORE_BY_GROUP}",
    ),
    "lds_of_the_other_wave_without_a_barrier": (
        "lds-race",
        "ds_load_b32",
        f"{OTHER_WAVE}\nds_store_b32 v1, v0\ns_wait_dscnt 0x0\nds_load_b32 v2, v3\ns_wait_dscnt 0x0\nv_mov_b32 v2, 0\n"
        f"{STORE_BY_GROUP}",
        f"{OTHER_WAVE}\nds_store_b32 v1, v0\ns_wait_dscnt 0x0\n{BARRIER}\nds_load_b32 v2, v3\ns_wait_dscnt 0x0\n"
        f"{STORE_BY_GROUP}",
    ),
    "lds_store_still_under_way_at_the_barrier": (
        "lds-race",
        "ds_load_b32",
        f"{OTHER_WAVE}\nds_store_b32 v1, v0\n{BARRIER}\nds_load_b32 v2, v3\ns_wait_dscnt 0x0\n{STORE_BY_GROUP}",
        f"{OTHER_WAVE}\nds_store_b32 v1, v0\ns_wait_dscnt 0x0\n{BARRIER}\nds_load_b32 v2, v3\ns_wait_dscnt 0x0\n"
        f"{STORE_BY_GROUP}",
    ),
    "lds_overwritten_before_the_other_wave_has_read_it": (
        "lds-race",
        "ds_store_b32",
        f"{OTHER_WAVE}\nds_store_b32 v1, v0\ns_wait_dscnt 0x0\n{BARRIER}\nds_load_b32 v2, v3\nds_store_b32 v1, v0\n"
        f"s_wait_dscnt 0x0\n{STORE_BY_GROUP}",
        f"{OTHER_WAVE}\nds_store_b32 v1, v0\ns_wait_dscnt 0x0\n{BARRIER}\nds_load_b32 v2, v3\ns_wait_dscnt 0x0\n"
        f"{BARRIER}\nds_store_b32 v1, v0\n{STORE_BY_GROUP}",
    ),
    "two_work_groups_store_to_one_place": (
        "global-race",
        "global_store_b32",
        f"v_mov_b32 v2, 0\n{STORE}",
        f"v_mov_b32 v2, 0\n{STORE_BY_GROUP}",
    ),
    "a_work_group_reads_what_another_stores": (
        "global-race",
        "global_",
        "v_mov_b32 v2, 0\ns_lshl_b32 s8, ttmp9, 8\nv_add_nc_u32 v3, s8, v1\nglobal_store_b32 v3, v2, s[4:5]\n"
        "v_xor_b32 v3, 0x100, v3\nglobal_load_b32 v4, v3, s[4:5]",
        "v_mov_b32 v2, 0\ns_lshl_b32 s8, ttmp9, 8\nv_add_nc_u32 v3, s8, v1\nglobal_store_b32 v3, v2, s[4:5]\n"
        "global_load_b32 v4, v3, s[4:5]",
    ),
    "waves_share_global_memory_without_a_barrier": (
        "global-race",
        "global_load_b32",
        f"v_mov_b32 v2, 0\n{STORE_BY_GROUP}\nv_xor_b32 v3, 0x80, v1\nglobal_load_b32 v4, v3, s[4:5]",
        f"v_mov_b32 v2, 0\n{STORE_BY_GROUP}\ns_wait_storecnt 0x0\n{BARRIER}\nv_xor_b32 v3, 0x80, v1\n"
        "global_load_b32 v4, v3, s[4:5]",
    ),
    "plain_stores_next_to_atomics": (
        "global-race",
        "global_",
        f"v_mov_b32 v2, 1\nv_mov_b32 v3, 0\nglobal_store_b32 v3, v2, s[4:5]\ns_wait_storecnt 0x0\n{BARRIER}",
        "v_mov_b32 v2, 1\nv_mov_b32 v3, 0\nglobal_atomic_add_u32 v3, v2, s[4:5] scope:SCOPE_DEV",
    ),
    "one_wave_skips_a_barrier": (
        "barrier-divergence",
        None,
        f"{FIRST_WAVE.format(label='skipped')}\n{BARRIER}\nskipped:",
        f"{FIRST_WAVE.format(label='not_skipped')}\nnot_skipped:\n{BARRIER}",
    ),
    "signalled_twice_before_one_wait": (
        "barrier-divergence",
        "s_barrier_signal",
        "s_barrier_signal -1\ns_barrier_signal -1\ns_barrier_wait -1",
        f"{BARRIER}\n{BARRIER}",
    ),
    "scalar_load_between_dwords": (
        "misaligned",
        "s_load_b32",
        f"s_load_b32 s9, s[6:7], 0x2\ns_wait_kmcnt 0x0\nv_mov_b32 v2, s9\n{STORE_BY_GROUP}",
        f"s_load_b32 s9, s[6:7], 0x4\ns_wait_kmcnt 0x0\nv_mov_b32 v2, s9\n{STORE_BY_GROUP}",
    ),
    "wide_lds_access_off_its_width": (
        "misaligned",
        "ds_store_b64",
        "v_lshlrev_b32 v3, 3, v0\nv_mov_b32 v4, 0\nv_mov_b32 v5, 0\nds_store_b64 v3, v[4:5] offset:4",
        "v_lshlrev_b32 v3, 3, v0\nv_mov_b32 v4, 0\nv_mov_b32 v5, 0\nds_store_b64 v3, v[4:5] offset:8",
    ),
    "denormal_flushed": (
        "denormal-mode",
        "v_mul_f32",
        f"s_denorm_mode 0x0\nv_mov_b32 v2, 0x1000\nv_mul_f32 v2, 1.0, v2\n{STORE_BY_GROUP}",
        f"s_denorm_mode 0xf\nv_mov_b32 v2, 0x1000\nv_mul_f32 v2, 1.0, v2\n{STORE_BY_GROUP}",
    ),
    "fp8_conversion_overflows": (
        "overflow-mode",
        "v_cvt_pk_fp8_f32",
        f"v_mov_b32 v2, 0x447a0000\nv_cvt_pk_fp8_f32 v2, v2, v2\n{STORE_BY_GROUP}",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\nv_mov_b32 v2, 0x447a0000\n"
        f"v_cvt_pk_fp8_f32 v2, v2, v2\n{STORE_BY_GROUP}",
    ),
}

# Without a barrier, what the other wave's LDS holds depends on which wave is ahead.
RACING = {
    "racing": f"{OTHER_WAVE}\nds_store_b32 v1, v0\ns_wait_dscnt 0x0\nds_load_b32 v2, v3\ns_wait_dscnt 0x0\n"
    f"{STORE_BY_GROUP}"
}

# Right, although undefined registers are near: none may be reported.
HARMLESS = {
    "lanes_that_are_off_are_never_set": f"v_cmp_gt_u32 vcc_lo, 8, v0\ns_and_saveexec_b32 s9, vcc_lo\nv_mov_b32 v2, 1\n"
    f"{STORE_BY_GROUP}",
    "bits_that_a_mask_removes": f"v_and_b32 v2, 0xff0000, v9\nv_lshlrev_b32 v2, 16, v2\n{STORE_BY_GROUP}",
    "a_select_that_takes_the_other": f"v_cmp_eq_u32 vcc_lo, v0, v0\nv_cndmask_b32 v2, v9, v0, vcc_lo\n{STORE_BY_GROUP}",
    "rows_of_a_matrix_that_are_not_stored": """
v_cmp_gt_u32 vcc_lo, 16, v0
v_mov_b32 v10, 0
v_mov_b32 v11, 0
v_wmma_i32_16x16x16_iu8 v[20:27], v[10:11], v[10:11], v[20:27]
v_mov_b32 v2, 0
"""
    + STORE_BY_GROUP,
    "later_loads_into_registers_of_earlier_ones": f"{LOAD}\n{LOAD}\ns_wait_loadcnt 0x0\n{STORE_BY_GROUP}",
    "the_last_work_group_reads_what_all_have_stored": f"""
v_mov_b32 v2, 1
{STORE_BY_GROUP}
s_wait_storecnt 0x0
{BARRIER}
v_mov_b32 v3, 0
global_atomic_add_u32 v4, v3, v2, s[4:5] offset:1024 th:TH_ATOMIC_RETURN scope:SCOPE_DEV
s_wait_loadcnt 0x0
v_readfirstlane_b32 s8, v4
s_cmp_lt_u32 s8, 96
s_cbranch_scc1 not_last
v_lshlrev_b32 v1, 2, v0
global_load_b32 v5, v1, s[4:5]
global_load_b32 v6, v1, s[4:5] offset:256
not_last:
""",
}


@functools.cache
def image() -> bytes:
    bodies = {name: faulty for name, (_, _, faulty, _) in CASES.items()}
    bodies |= {f"{name}_repaired": repaired for name, (*_, repaired) in CASES.items()}
    return code_object(bodies | HARMLESS | RACING)


@pytest.fixture
def launch(virtual_gpu):
    """Runs a kernel of this file on two work-groups of two waves under the sanitizer; gives the findings."""
    virtual_gpu.sanitize()
    module = virtual_gpu.load_module(image())
    out = virtual_gpu.allocate(bytes(2048))
    # 256 bytes that hold something, and 256 that nobody has written.
    source = ctypes.c_void_p()
    virtual_gpu.hip("hipMalloc", ctypes.byref(source), ctypes.c_size_t(512))
    ctypes.memmove(source, bytes(range(256)), 256)

    def launch(kernel, first=out, second=None):
        arguments = struct.pack("QQ", first, second or source.value)
        virtual_gpu.launch(module.function(kernel), (2,), (64,), arguments)
        return virtual_gpu.findings()

    yield launch
    module.unload()
    virtual_gpu.free(out)
    virtual_gpu.free(source.value)
    virtual_gpu.sanitize(False)
    virtual_gpu.reset()  # what was found here was meant to be


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_at_its_instruction_and_its_repair_is_not(launch, virtual_gpu, name):
    fault, instruction, _, _ = CASES[name]
    found = launch(name)
    assert {finding.fault for finding in found} == {fault}, found
    assert all(finding.kernel == name for finding in found)
    if instruction:
        assert any(instruction in finding.text for finding in found), found
    virtual_gpu.reset()
    assert launch(f"{name}_repaired") == []


@pytest.mark.parametrize("name", HARMLESS)
def test_undefined_bits_that_decide_nothing_are_not_reported(launch, name):
    assert launch(name) == []


@pytest.mark.finds("lds-race", "undefined-result")
def test_schedules_show_that_a_race_decides_results(virtual_gpu):
    module = virtual_gpu.load_module(image())
    out, outputs = virtual_gpu.allocate(bytes(512)), set()
    for seed in range(20):
        virtual_gpu.configure(schedule_seed=seed)
        virtual_gpu.launch(module.function("racing"), (2,), (64,), struct.pack("QQ", out, out))
        outputs.add(virtual_gpu.read(out, 512))
    module.unload()
    virtual_gpu.free(out)
    assert len(outputs) > 1


def test_every_class_of_finding_is_explained():
    page = (DOCS / "sanitizer.md").read_text()
    assert [fault for fault, *_ in CASES.values() if f"`{fault}`" not in page] == []


def test_every_class_of_finding_has_a_faulty_kernel(virtual_gpu):
    assert {fault for fault, *_ in CASES.values()} == set(virtual_gpu.fault_classes())


def test_an_overrun_ends_in_the_gap_between_tensors(launch, rocm_torch):
    import torch

    tensors = [torch.zeros(64, dtype=torch.int32) for _ in range(8)]
    for tensor in tensors:
        with pytest.raises(HipError) as caught:
            launch("two_work_groups_store_to_one_place", first=tensor.data_ptr() + 4)
        assert caught.value.code == ILLEGAL_ADDRESS and "past the end of torch tensor" in caught.value.explanation


def test_freed_memory_does_not_come_back_as_another_tensor(launch, rocm_torch):
    import torch

    tensor = torch.zeros(1024, dtype=torch.int32)
    stale = tensor.data_ptr()
    del tensor
    again = [torch.zeros(1024, dtype=torch.int32) for _ in range(4)]
    assert stale not in [x.data_ptr() for x in again]
    with pytest.raises(HipError) as caught:
        launch("two_work_groups_store_to_one_place", first=stale)
    assert caught.value.code == ILLEGAL_ADDRESS


def test_findings_count_and_name_their_place(launch):
    (finding,) = launch("vgpr_never_set")
    assert finding.count == 4  # two work-groups of two waves
    assert "work-group (0, 0, 0), wave 0, code +0x" in finding.text and "lane 0" in finding.text

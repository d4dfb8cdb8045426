"""Mistakes before the merge: which keys, where they lie, heads and rows, scores."""

import torch

from grader.kinds.attention.known_mistakes import HEADS, POINTERS, SCALE
from grader.kinds.decode.mistakes import (
    CAPACITY,
    CAUSAL,
    GROUP,
    LAST,
    MASK,
    NEWEST,
    OWN,
    PAGE,
    PAGES,
    TILES,
    WHICH_SCALE,
    WHICH_WINDOW,
    WHOSE,
    Mistake,
    before_the_first,
    grouped,
    new_in_window,
    new_or_window,
    paged,
    several_kv_heads,
    several_new,
    several_sequences,
    windowed,
)
from grader.kinds.decode.steps import LOG2_E, gather, positive


def swap_rows(x, tensor):
    """(B, Hq, Nq, D) whose rows of a group are taken in the other order: new tokens first, heads second."""
    rows = tensor.unflatten(1, (-1, x.group)).flatten(2, 3)
    return rows.unflatten(2, (x.case.Nq, x.group)).transpose(2, 3).flatten(1, 2)


def first_of_tile(x, tile):
    return x.table[:, x.k_pos // tile * tile // x.page_size]


def by_token(x):
    """The page at the token's own number in the table; -1 past its end."""
    most = x.table.shape[1]
    return torch.where(x.k_pos < most, x.table[:, x.k_pos.clamp(max=most - 1)], -1)


def by_row(x):
    """The page at the number of the token's row in the table; -1 past its end."""
    row, most = x.k_pos % x.page_size, x.table.shape[1]
    return torch.where(row < most, x.table[:, row.clamp(max=most - 1)], -1)


KEYS = (
    # which keys
    Mistake("attention without the last key of each sequence", LAST, MASK, {"end": lambda x: x.lengths - 1}),
    Mistake("attention with one key more than each sequence has", LAST, MASK,
            {"end": lambda x: x.lengths + 1, "q_pos": lambda x: x.lengths - x.case.Nq + 1 + x.token}),
    Mistake("attention with one key more than each sequence has", LAST, MASK,
            {"end": lambda x: x.lengths + 1, "age": lambda x: x.q_pos + 1 - x.k_pos,
             "seen": lambda x: x.inside & (x.age >= 0) & (x.age <= x.window)}),
    Mistake("lengths with the new tokens twice", NEWEST, MASK,
            {"lengths": lambda x: x.lengths + x.case.Nq}),
    Mistake("lengths without the new tokens", NEWEST, MASK,
            {"lengths": lambda x: x.lengths - x.case.Nq}),
    Mistake("attention over everything that the cache holds, past the lengths too", LAST, MASK,
            {"end": lambda x: x.lengths * 0 + x.case.tokens, "seen": lambda x: x.inside & (x.age < x.window)}),
    Mistake("new tokens that see newer ones, too", CAUSAL, MASK,
            {"seen": lambda x: x.inside & (x.age < x.window)}, several_new),
    *(
        Mistake(f"new tokens that see newer ones, too, in every tile but the last (tiles of {tile})", CAUSAL, MASK,
                {"seen": lambda x, tile=tile: x.inside & (x.age < x.window)
                 & ((x.age >= 0) | (x.k_pos < (x.lengths - 1) // tile * tile))}, several_new)
        for tile in TILES
    ),
    Mistake("new tokens that all stand at the last position", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths - 1 + 0 * x.token}, several_new),
    Mistake("new tokens that all stand at the first new position", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths - x.case.Nq + 0 * x.token}, several_new),
    Mistake("new tokens one position too early", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths - x.case.Nq - 1 + x.token}),
    Mistake("new tokens one position too late", NEWEST, MASK, {"q_pos": lambda x: x.lengths - x.case.Nq + 1 + x.token},
            new_or_window),
    Mistake("new tokens at positions behind the length, as if it did not count them", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths + x.token, "first": lambda x: (x.lengths + 1 - x.window).clamp(min=0)},
            new_or_window),
    Mistake("new tokens at positions behind the length, as if it did not count them", NEWEST, MASK,
            {"q_pos": lambda x: x.lengths + x.token}, new_or_window),
    Mistake("new tokens at positions 0, 1, 2 ..., as if there were no cache", NEWEST, MASK,
            {"q_pos": lambda x: x.token + 0 * x.lengths}),
    *(
        Mistake("rows whose position counts the heads of their group", NEWEST, MASK,
                {"q_pos": lambda x, of=of: x.lengths - x.case.Nq + of(x, (torch.arange(x.case.Hq) % x.group)[:, None])},
                grouped)
        for of in (lambda x, member: member[..., None], lambda x, member: (member * x.case.Nq + x.token.T)[..., None])
    ),
    Mistake("new tokens that see key 0 where their position is negative", NEWEST, MASK,
            {"q_pos": lambda x: (x.lengths - x.case.Nq + x.token).clamp(min=0)}, before_the_first),
    Mistake("new tokens in the reverse order", NEWEST, MASK, {"q_pos": lambda x: x.lengths - 1 - x.token}, several_new),
    Mistake("attention in which no token sees its own key", OWN, MASK,
            {"seen": lambda x: x.inside & (x.age > 0) & (x.age < x.window)}),
    Mistake("attention without the window", WHICH_WINDOW, MASK, {"window": lambda x: x.case.tokens}, windowed),
    Mistake("a window that is one too long", WHICH_WINDOW, MASK, {"window": lambda x: x.window + 1}, windowed),
    Mistake("a window that is one too long", WHICH_WINDOW, MASK,
            {"seen": lambda x: x.inside & (x.age >= 0) & (x.age <= x.window)}, windowed),
    Mistake("a window that is one too short", WHICH_WINDOW, MASK, {"window": lambda x: x.window - 1}, windowed),
    Mistake("a window that is one too short for the first new token", WHICH_WINDOW, MASK,
            {"first": lambda x: (x.lengths - x.case.Nq + 2 - x.window).clamp(min=0)}, windowed),
    Mistake("a window that begins for all new tokens where that of the last one does", WHICH_WINDOW, MASK,
            {"first": lambda x: (x.lengths - x.window).clamp(min=0)}, new_in_window),
    Mistake("a window that begins for all new tokens where that of the first one does", WHICH_WINDOW, MASK,
            {"seen": lambda x: x.inside & (x.age >= 0)}, new_in_window),
    Mistake("a window of as many tokens as block_table has pages for a sequence", CAPACITY, PAGES,
            {"window": lambda x: min(x.window, x.table.shape[1])}, paged),
    Mistake("the window's first keys alone: the window is taken for a length", WHICH_WINDOW, MASK,
            {"first": lambda x: x.lengths * 0, "seen": lambda x: x.inside & (x.age >= 0) & (x.k_pos < x.window)},
            windowed),
    Mistake("every sequence with the length of the first one", WHOSE, POINTERS, {"lengths": lambda x: x.lengths[:1]},
            several_sequences),
    Mistake("every sequence with the longest length", WHOSE, POINTERS,
            {"lengths": lambda x: x.lengths.amax(0, keepdim=True).expand_as(x.lengths)}, several_sequences),
    # where they lie
    *(
        Mistake(f"attention whose {said} {words}", question, PAGES if question is PAGE else POINTERS,
                {name: lambda x, pages=pages, at=at: gather(getattr(x, pages), *at(x)) for name, pages in sides},
                applies)
        for said, sides in (
            ("keys and values", (("k", "pages_k"), ("v", "pages_v"))), ("keys", (("k", "pages_k"),)),
            ("values", (("v", "pages_v"),)),
        )
        for words, question, at, applies in (
            ("come from the pages in their own order, without block_table", PAGE,
             lambda x: ((x.k_pos // x.page_size).expand_as(x.page), x.row), paged),
            ("come from the pages in their own order, a sequence after the other", PAGE,
             lambda x: (torch.arange(x.case.B)[:, None] * x.table.shape[1] + x.k_pos // x.page_size, x.row), paged),
            ("come from the page that stands at the token's own number in block_table", PAGE,
             lambda x: (by_token(x), x.row), paged),
            ("come from the pages of sequence 0", WHOSE, lambda x: (x.page[:1].expand_as(x.page), x.row),
             lambda case: paged(case) and several_sequences(case)),
            ("come from sequence 0", WHOSE, lambda x: (0 * x.page, x.row),
             lambda case: not paged(case) and several_sequences(case)),
            ("come from the first row of their page", PAGE, lambda x: (x.page, 0 * x.row), paged),
            ("come from the next page", PAGE,
             lambda x: (x.table.roll(-1, 1)[:, x.k_pos // x.page_size], x.row), paged),
            ("come from pages and rows in each other's place", PAGE,
             lambda x: (by_row(x), (x.k_pos // x.page_size).expand_as(x.row)), paged),
            ("come from row `j & (page_size - 1)` of their page: `j % page_size` for powers of two alone", PAGE,
             lambda x: (x.page, (x.k_pos & (x.page_size - 1)).expand_as(x.row)), paged),
            ("stand in each page in the reverse order", PAGE, lambda x: (x.page, x.page_size - 1 - x.row), paged),
            *(
                (f"come from the page of the first key of their tile (tiles of {tile})", PAGE,
                 lambda x, tile=tile: (first_of_tile(x, tile), x.row), paged)
                for tile in TILES
            ),
            *(
                (f"come from one page for each tile (tiles of {tile}), entry after entry", PAGE,
                 lambda x, tile=tile: (x.table[:, (x.k_pos // tile).clamp(max=x.table.shape[1] - 1)], x.row), paged)
                for tile in TILES
            ),
        )
    ),
    Mistake("attention over whole pages alone, without the last one that is not full", LAST, MASK,
            {"end": lambda x: x.lengths // x.page_size * x.page_size}, paged),
    Mistake("values taken from the keys", WHOSE, POINTERS, {"v": lambda x: gather(x.pages_k, x.page, x.row)}),
    Mistake("keys taken from the values", WHOSE, POINTERS, {"k": lambda x: gather(x.pages_v, x.page, x.row)}),
    Mistake("q of sequence 0 for every sequence", WHOSE, POINTERS, {"q": lambda x: x.q[:1].expand_as(x.q)},
            several_sequences),
    # heads and rows
    Mistake("query heads given to kv heads by h % Hkv, not h // group", GROUP, HEADS,
            {"kv_head": lambda x: torch.arange(x.case.Hq) % x.case.Hkv}, lambda case: grouped(case) and case.Hkv > 1),
    Mistake("attention over kv head 0 for every head", GROUP, HEADS,
            {"kv_head": lambda x: torch.zeros(x.case.Hq).long()}, several_kv_heads),
    *(
        Mistake(f"attention over the {name} of kv head 0 for every head", GROUP, HEADS,
                {name: lambda x, of=of: getattr(x, of)[:, torch.zeros(x.case.Hq).long()]}, several_kv_heads)
        for name, of in (("keys", "k"), ("values", "v"))
    ),
    Mistake("every query head of a group with the q of its first one", GROUP, HEADS,
            {"q": lambda x: x.q[:, torch.arange(x.case.Hq) // x.group * x.group]}, grouped),
    Mistake("every new token with the q of the first one", GROUP, HEADS, {"q": lambda x: x.q[:, :, :1].expand_as(x.q)},
            several_new),
    Mistake("rows that are loaded as heads x tokens and stored as tokens x heads", GROUP, HEADS,
            {"o": lambda x: swap_rows(x, x.acc / positive(x.total)[..., None])},
            lambda case: grouped(case) and several_new(case)),
    Mistake("q whose rows are taken as tokens x heads", GROUP, HEADS, {"q": lambda x: swap_rows(x, x.q)},
            lambda case: grouped(case) and several_new(case)),
    # scores
    Mistake("scores that are not scaled", WHICH_SCALE, SCALE, {"scale": lambda x: 1.0}),
    Mistake("scores that are scaled twice", WHICH_SCALE, SCALE, {"scale": lambda x: x.scale**2}),
    Mistake("scores that are scaled by 1 / D", WHICH_SCALE, SCALE, {"scale": lambda x: 1.0 / x.case.D}),
    Mistake("scores that are scaled by 1 / sqrt(D), whatever softmax_scale is", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.case.D**-0.5}, lambda case: bool(case.scale)),
    Mistake("scores that are scaled by 1 / sqrt(D), as if a softmax_scale of 0 were none", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.case.D**-0.5}, lambda case: case.scale == 0),
    Mistake("scores that are scaled by softmax_scale and by 1 / sqrt(D)", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.scale * x.case.D**-0.5}, lambda case: case.scale is not None),
    Mistake("scores multiplied by log2(e), under exp", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.scale * LOG2_E, "part_lse": lambda x: x.part_max + x.part_sum.log()}),
    Mistake("scores without the factor log2(e), under exp2", WHICH_SCALE, SCALE,
            {"scale": lambda x: x.scale / LOG2_E, "sink": lambda x: x.sink}),
)  # fmt: skip

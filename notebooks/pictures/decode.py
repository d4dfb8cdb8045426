"""What notebook 09 draws: pieces and their merge, pages and a block table, and results of sums in other orders."""

import torch
from matplotlib.patches import Rectangle

from notebooks.pictures.online_softmax import PALE, WRONG, bare
from notebooks.pictures.png import PAGE, png
from report.pages.drawing import INK, OURS_DARK, SOFT, house_style, new_figure

COLOURS = ("#9cc2e5", "#f3c08a", "#a8d5a2", "#d3b3e0", "#e8a5a0")


def pieces(scores, piece, lse, share, o):
    """One row. scores: (keys,). lse, share: (pieces,), of a piece and its part of the result. o: (pieces, D)."""
    keys, count = len(scores), len(lse)
    merged = share @ o
    with house_style():
        figure = new_figure(PAGE, 4.4, f"{keys} keys in pieces of {piece}: each its own softmax, then one merge")
        top = bare(figure.add_axes((0.115, 0.6, 0.87, 0.27)))
        colours = [COLOURS[key // piece] for key in range(keys)]
        top.bar(range(keys), scores, color=colours, width=0.8)
        top.set_xlim(-0.6, keys - 0.4)
        top.set_xticks([])
        top.set_ylabel("scores")
        top.axhline(0, color=SOFT, linewidth=0.7)
        low, high = min(o.min().item(), 0), max(o.max().item(), 0)
        for at in range(count):
            axes = bare(figure.add_axes((0.115 + 0.87 * at / count, 0.32, 0.8 / count, 0.15)))
            axes.bar(range(o.shape[1]), o[at], color=COLOURS[at], width=0.8)
            axes.set_ylim(low, high)
            axes.set_title(f"lse {lse[at]:.2f}", color=INK)
            axes.set_xticks([])
            axes.set_xlabel(f"counts {share[at]:.0%}")
            if at:
                axes.set_yticks([])
            else:
                axes.set_ylabel("o of each\npiece")
        last = bare(figure.add_axes((0.38, 0.05, 0.34, 0.15)))
        last.bar(range(o.shape[1]), merged, color=OURS_DARK, width=0.8)
        last.set_ylim(low, high)
        last.set_xticks([])
        last.set_ylabel("merged o")
    return png(figure, "Scores in four pieces, the o and lse of each piece, and the merged o")


def pages(table, lengths, page_size, there):
    """table: rows of page numbers, a row for each sequence. there: how many pages the cache has."""
    with house_style():
        figure = new_figure(PAGE, 3.1, f"Two sequences in pages of {page_size} tokens")
        axes = figure.add_axes((0.02, 0.02, 0.96, 0.84))
        axes.set(xlim=(0, 12), ylim=(0, 6.2))
        axes.axis("off")
        wide = 11.6 / there
        for page in range(there):
            box(axes, 0.2 + page * wide, 0.35, 0.92 * wide, 1.3, "#eef0f3")
            axes.text(0.2 + (page + 0.46) * wide, 0.05, f"page {page}", ha="center", color=SOFT)
        for b, (row, length) in enumerate(zip(table, lengths, strict=True)):
            left = 1.9 + 5.6 * b
            axes.text(left, 5.75, f"sequence {b}: {length} tokens", color=INK)
            for entry, page in enumerate(row):
                x, to = left + 0.95 * entry, 0.2 + page * wide
                box(axes, x, 4.3, 0.9, 0.9, COLOURS[b])
                axes.text(x + 0.45, 4.75, str(page), ha="center", va="center", color=INK)
                axes.text(x + 0.45, 5.3, f"entry {entry}", ha="center", size=7.5, color=SOFT)
                held = min(page_size, length - entry * page_size)
                box(axes, to, 0.35, 0.92 * wide * held / page_size, 1.3, COLOURS[b])
                first = entry * page_size
                axes.text(to + 0.46 * wide, 1.0, f"{first}–{first + held - 1}", ha="center", va="center", color=INK)
                axes.plot([x + 0.45, to + 0.46 * wide], [4.3, 1.65], color=SOFT, linewidth=0.9)
        axes.text(1.75, 4.75, "block\ntable", ha="right", va="center", color=SOFT)
    return png(figure, "Entries of a block table point to pages, which lie in any order; two pages are free")


def box(axes, x, y, width, height, colour):
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="white"))


def results(batches, by_share, fixed, right):
    """One number of o, as its distance from `right`. by_share: for each size of the batch. fixed: for all of them."""
    with house_style():
        figure = new_figure(PAGE, 2.7, "The same sequence in larger and larger batches: one number of its o")
        axes = bare(figure.add_axes((0.115, 0.18, 0.87, 0.68)), grid="y")
        for name, found, colour, mark in (
            ("a share of the cache for each piece", by_share, WRONG, "o-"),
            ("256 tokens for each piece", [fixed] * len(batches), OURS_DARK, "s-"),
        ):
            away = (torch.stack(found).double() - right) * 1e9
            axes.plot(range(len(batches)), away, mark, color=colour, label=name, linewidth=1.2, markersize=5)
        axes.axhline(0, color=PALE, linewidth=1.2)
        axes.set_xticks(range(len(batches)), batches)
        axes.set_xlabel("sequences in the batch")
        axes.set_ylabel("result minus exact,\nin units of 1e-9")
        axes.legend(frameon=False)
    return png(figure, "By shares the result changes with the batch; with pieces of 256 tokens it stays")

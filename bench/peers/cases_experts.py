"""MoE layer of other libraries, as in cases_moe.cpp: E experts of 2 C hidden columns, two active
experts per token, balanced."""

import torch
import torch.nn.functional as F
from cases_products import pytorch_swiglu, without_grad

EXPERTS, ACTIVE, ALIGN = 8, 2, 32


class Experts:
    def __init__(self, cases, label, tokens, C):
        self.cases, self.label, self.tokens, self.C, self.hidden = cases, label, tokens, C, 2 * C
        self.rows = (tokens * ACTIVE + EXPERTS * (ALIGN - 1)) // ALIGN * ALIGN

    def ends(self):
        """Returns the end of each expert's rows, for torch's grouped GEMMs."""
        ends = [(e + 1) * (self.rows // EXPERTS) for e in range(EXPERTS)]
        return torch.tensor(ends, dtype=torch.int32, device=self.cases.device)

    def indices(self, *shape, bound):
        return torch.randint(0, bound, shape, device=self.cases.device)

    def products(self):
        """Grouped GEMMs; those of weight gradients are grouped along the rows."""
        cases, R, C, hidden = self.cases, self.rows, self.C, self.hidden

        def add(name, sizes, outputs, run):
            """sizes: of the operands. outputs: number of elements written."""
            operand_bytes = sum(torch.Size(size).numel() for size in sizes) * cases.size
            products = 2 if name == "swiglu" else 1
            cost = (2e-9 * products * R * C * hidden,
                    (operand_bytes + outputs * cases.size) * 1e-9)

            def maker(compiled):
                def make():
                    operands = [cases.randn(*size) for size in sizes]
                    return operand_bytes, without_grad(compiled, self.ends(), *operands)

                return make

            for impl, compiler in cases.compilers(cases.blas):
                cases.add(f"grouped_gemm/{name}/{self.label}", impl, cost,
                          lambda compiler=compiler: maker(compiler(run)))

        def of_rows(ends, x, w):
            return F.grouped_mm(x, w.transpose(1, 2), offs=ends)

        def swiglu(ends, x, w_gate, w_up):
            gate, up = of_rows(ends, x, w_gate), of_rows(ends, x, w_up)
            return gate, up, pytorch_swiglu(gate, up)

        weights = (EXPERTS, hidden, C)
        add("swiglu", ((R, C), weights, weights), 3 * R * hidden, swiglu)
        add("down", ((R, hidden), (EXPERTS, C, hidden)), R * C, of_rows)
        add("dx_down", ((R, C), (EXPERTS, C, hidden)), R * hidden,
            lambda ends, dy, w: F.grouped_mm(dy, w, offs=ends))
        add("dw_down", ((R, C), (R, hidden)), EXPERTS * C * hidden,
            lambda ends, dy, x: F.grouped_mm(dy.T, x, offs=ends))

    def add_moves(self, name, tensor_bytes, others, run, operands):
        """tensor_bytes: bytes read or written. others: bytes of indices and weights."""
        cost = (0, (tensor_bytes + others) * 1e-9)

        def maker(compiled):
            return lambda: (tensor_bytes, without_grad(compiled, *operands()))

        for impl, compiler in self.cases.compilers():
            self.cases.add(f"{name}/{self.label}", impl, cost,
                           lambda compiler=compiler: maker(compiler(run)))

    def moves(self):
        cases, N, R, C = self.cases, self.tokens, self.rows, self.C
        token, row = C * cases.size, self.indices
        self.add_moves("moe_permute", 2 * R * token, 4 * R, lambda x, of: x[of],
                       lambda: (cases.randn(N, C), row(R, bound=N)))

        def combine(x, rows, weights, residual):
            return residual + (x[rows].float() * weights[..., None]).sum(1).to(x.dtype)

        def choices():
            return torch.rand(N, ACTIVE, device=cases.device)

        self.add_moves("moe_combine", (ACTIVE + 2) * N * token, 8 * ACTIVE * N, combine,
                       lambda: (cases.randn(R, C), row(N, ACTIVE, bound=R), choices(),
                                cases.randn(N, C)))
        self.add_moves("moe_dots", (ACTIVE + 1) * N * token, 8 * ACTIVE * N,
                       lambda x, y, rows: (x[:, None].float() * y[rows].float()).sum(-1),
                       lambda: (cases.randn(N, C), cases.randn(R, C),
                                row(N, ACTIVE, bound=R)))

    def routers(self):
        cases, N = self.cases, self.tokens
        logits = 4 * N * EXPERTS

        def route(x):
            weights, experts = torch.softmax(x, -1).topk(ACTIVE)
            return weights / weights.sum(-1, keepdim=True), experts

        def make_backward():
            x = cases.randn(N, EXPERTS, grad=True)
            weights, _ = route(x)
            d_weights = torch.randn_like(weights)
            return logits, lambda: torch.autograd.grad(weights, x, d_weights, retain_graph=True)

        def sort(experts):
            """Returns the destination of each choice, and the source of each row."""
            order = experts.flatten().argsort(stable=True)
            rows = torch.empty_like(order)
            rows[order] = torch.arange(order.numel(), device=order.device)
            return torch.bincount(experts.flatten(), minlength=EXPERTS), rows, order

        self.add_moves("moe_route_fwd", logits, 8 * ACTIVE * N, route,
                       lambda: (cases.randn(N, EXPERTS),))
        cases.add(f"moe_route_bwd/{self.label}", "PyTorch eager",
                  (0, (2 * logits + 8 * ACTIVE * N) * 1e-9), lambda: make_backward)
        self.add_moves("moe_sort", 4 * ACTIVE * N, 8 * ACTIVE * N, sort,
                       lambda: (self.indices(N, ACTIVE, bound=EXPERTS),))


def add_all(cases):
    tokens, C = (16, 16) if cases.tiny else (16384, 768)
    experts = Experts(cases, "16384", tokens, C)
    experts.products()
    experts.moves()
    if cases.name == "fp32":
        experts.routers()

"""Block of GPT-2 and of vision transformers, for the scripts that contain their models."""

import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Pre-norm block on x: [N, T, width]; gelu: its `approximate`, "tanh" or "none"."""

    def __init__(self, width, heads, causal, gelu):
        super().__init__()
        self.heads, self.causal, self.gelu = heads, causal, gelu
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        N, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(N, T, 3, self.heads, C // self.heads).unbind(2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                           v.transpose(1, 2), is_causal=self.causal)
        x = x + self.project(y.transpose(1, 2).reshape(N, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))

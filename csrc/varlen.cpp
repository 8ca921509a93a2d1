// The varlen kernels of one level as a table for the dispatcher.
#include "varlen.hpp"

namespace cenote::CENOTE_ISA {

void attention(const AttentionArgs&);
void row_norm(const RowNormArgs&);
void head_norm(const HeadNormArgs&);
void embedding(const EmbeddingArgs&);
void rotary(const RotaryArgs&);
void pool(const PoolArgs&);
void normalize(const NormalizeArgs&);
void maxsim(const MaxSimArgs&);

extern const VarlenKernels varlen_kernels;
const VarlenKernels varlen_kernels = {attention, row_norm, head_norm, embedding,
                                      rotary,    pool,     normalize, maxsim};

}  // namespace cenote::CENOTE_ISA

"""ResNet-18 for small images.

K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.
"""

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """Return torchvision's ResNet-18 with a 3x3 stem of stride 1 and no max pooling, as is usual for CIFAR.

    The last feature map is (512, 4, 4) at 28 and at 32 pixels, averaged to (512,): the parameters do not depend on
    the size. With 10 classes: 11,172,810 parameters at 1 channel, 11,173,962 at 3, and 9,600 values in BatchNorm's
    running means and variances.
    """
    from torchvision.models import resnet

    channels, *_ = shapes.image("resnet18", shape, least=9)  # 2 x 2 at the end: BatchNorm needs two values
    model: nn.Module = resnet.resnet18(weights=None, num_classes=classes)
    stem = nn.Conv2d(channels, 64, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does for the others
    model.conv1 = stem
    model.maxpool = nn.Identity()
    return model
